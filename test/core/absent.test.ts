/** Names of PyTorch that are not there are errors that say what to use instead. */
import assert from 'node:assert/strict';
import { absenceOf } from '../../lib/core/absent.js';
import * as distributed from '../../lib/distributed.js';
import * as shardwise from '../../lib/index.js';
import {
  AttributeError,
  DtypeError,
  IndexError,
  nn,
  ones,
  optim,
  Tensor,
} from '../../lib/index.js';
import { absentNamesOf, absentPlaces } from '../../scripts/generate-absent.js';

type Members = Readonly<Record<string, (...args: unknown[]) => unknown>>;

const namespaces: Readonly<Record<string, object>> = {
  nn,
  functional: nn.functional,
  init: nn.init,
  utils: nn.utils,
  optim,
  autograd: shardwise.autograd,
  cuda: shardwise.cuda,
  shardwise,
  tensor: Tensor.prototype,
  distributed,
};

const untyped = (value: object): Members => value as Members;

describe('an absent name', () => {
  for (const place of absentPlaces) {
    const members = untyped(namespaces[place.file] as object);
    it(`of ${place.prefix.slice(0, -1)} is not in the library, and a call of it says what is`, () => {
      const there: string[] = [];
      for (const { name, advice } of absentNamesOf(place)) {
        const value = members[name] as (...args: unknown[]) => unknown;
        if (absenceOf(value) === undefined) {
          there.push(`${place.prefix}${name}: remove it from scripts/absent-names`);
          continue;
        }
        assert.throws(value, new AttributeError(`${place.prefix}${name} ${advice}`, {}));
      }
      assert.deepEqual(there, []);
    });
  }

  it('throws where it is constructed or extended, too', () => {
    const { Conv2d, LSTM } = nn as unknown as Record<string, new (...sizes: number[]) => object>;
    assert.throws(() => new (Conv2d as new () => object)(), /^AttributeError.*nn\.Conv2d is not/);
    class Recurrent extends (LSTM as new () => object) {}
    assert.throws(() => new Recurrent(), /nn\.LSTM is not there yet/);
  });

  it('of a namespace throws where a member is read', () => {
    const { linalg } = shardwise as unknown as { linalg: Members };
    assert.throws(() => linalg['svd'], /shardwise\.linalg is not there yet/);
  });

  it('is named by the error of a function that is given it', () => {
    const dtype = shardwise.long as unknown as shardwise.DType;
    assert.throws(
      () => ones([2], { dtype }),
      (error: Error) => {
        assert.ok(error instanceof DtypeError);
        assert.match(error.message, /got shardwise\.long, which is not there: the dtype is int64$/);
        return true;
      },
    );
  });

  it('leaves a tensor what others look for in any value', async () => {
    const x = ones([2]);
    assert.equal(await x, x);
    assert.equal((x as unknown as Members)['then'], undefined);
    assert.equal(JSON.stringify({ x }), '{"x":[1,1]}');
  });
});

describe("PyTorch's spelling of a member", () => {
  it('throws where it is read, written or called', () => {
    const x = ones([2]) as unknown as Record<string, unknown>;
    const message = /^AttributeError.*Tensor\.requires_grad is not there.*camelCase, requiresGrad$/;
    assert.throws(() => x['requires_grad'], message);
    assert.throws(() => {
      x['requires_grad'] = true;
    }, message);
    assert.throws(() => untyped(ones([2]))['masked_fill_']?.(), /camelCase, maskedFill_$/);
  });

  it('throws for modules, optimizers and schedules', () => {
    const layer = new nn.Linear(2, 2);
    const optimizer = new optim.SGD(layer.parameters(), { lr: 0.1 });
    const schedule = new optim.lrScheduler.StepLR(optimizer, { stepSize: 1 });
    const calls: [object, string, RegExp][] = [
      [layer, 'load_state_dict', /Module\.load_state_dict .*loadStateDict$/],
      [optimizer, 'zero_grad', /Optimizer\.zero_grad .*zeroGrad$/],
      [schedule, 'get_last_lr', /LRScheduler\.get_last_lr .*getLastLr$/],
    ];
    for (const [object, name, message] of calls)
      assert.throws(() => untyped(object)[name]?.(), message);
  });

  it('may be the name of a method that a program writes', () => {
    class Net extends nn.Module {
      zero_grad(): string {
        return 'own';
      }
      forward(x: Tensor): Tensor {
        return x;
      }
    }
    assert.equal(new Net().zero_grad(), 'own');
  });
});

describe('an index of a tensor', () => {
  it('throws where it is read, with the calls that read', () => {
    assert.throws(
      () => ones([2])[1],
      new IndexError(
        'tensor[1]: JavaScript cannot index tensors; read x.select(0, 1), x.slice(0, from, to) or ' +
          'x.index([ids])',
      ),
    );
    assert.throws(() => ones([2])[-1], /tensor\[-1\].*x\.select\(0, -1\)/);
  });

  it('throws where it is written, instead of becoming a property', () => {
    const x = ones([2]);
    assert.throws(() => {
      (x as unknown as number[])[0] = 5;
    }, /tensor\[0\].*write x\.select\(0, 0\)\.fill_\(value\)/);
    assert.deepEqual(x.tolist(), [1, 1]);
  });
});
