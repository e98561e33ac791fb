/** Warnings of modules and parameters in plain arrays. */
import assert from 'node:assert/strict';
import { nn, ones, type Tensor } from '../../lib/index.js';

/** The texts of warnings of a kind that a function causes. */
async function warningsOf(fn: () => unknown): Promise<string[]> {
  const found: string[] = [];
  const listen = (warning: Error): void => {
    if (warning.name === 'ModuleWarning') found.push(warning.message);
  };
  process.on('warning', listen);
  fn();
  await new Promise(setImmediate);
  process.off('warning', listen);
  return found;
}

describe('an attribute that is an array', () => {
  it('of modules is warned of once for a class, with nn.ModuleList as advice', async () => {
    class Stack extends nn.Module {
      layers = [new nn.Linear(2, 2), new nn.Linear(2, 2)];
      forward(x: Tensor): Tensor {
        return this.layers.reduce((y, layer) => layer(y), x);
      }
    }
    const found = await warningsOf(() => {
      for (let i = 0; i < 2; i++) assert.equal([...new Stack().parameters()].length, 0);
    });
    assert.equal(found.length, 1);
    assert.match(found[0] as string, /^Stack\.layers is an array of modules.*nn\.ModuleList/);
  });

  it('of parameters is warned of, with nn.ParameterList as advice', async () => {
    class Scales extends nn.Module {
      scales = [new nn.Parameter(ones([2]))];
      forward(x: Tensor): Tensor {
        return x.mul(this.scales[0] as Tensor);
      }
    }
    const [warning] = await warningsOf(() => [...new nn.Sequential(new Scales()).parameters()]);
    assert.match(warning as string, /^Scales\.scales is an array of parameters.*nn\.ParameterList/);
  });

  it('of modules that are registered elsewhere below the module is fine', async () => {
    class Both extends nn.Module {
      list = new nn.ModuleList([new nn.Linear(2, 2)]);
      array = [...this.list];
      numbers = [1, 2];
      forward(x: Tensor): Tensor {
        return x;
      }
    }
    assert.deepEqual(await warningsOf(() => [...new Both().parameters()]), []);
  });
});
