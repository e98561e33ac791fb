/**
 * What people do wrong who come from PyTorch, NumPy or TensorFlow.js: all but a few mistakes end in
 * an error or a warning that says what to do.
 */
import assert from 'node:assert/strict';
import { ones } from '../../lib/index.js';
import type { Mistake } from './mistakes/mistake.js';
import { names, shapes, values } from './mistakes/tensors.js';
import { gradients, modules, others } from './mistakes/training.js';

const groups: Record<string, readonly Mistake[]> = {
  names,
  shapes,
  values,
  gradients,
  modules,
  others,
};

/** What the program is told: the message of its error, else of its warnings. */
async function answerTo(program: () => unknown): Promise<string> {
  const warnings: string[] = [];
  const record = ({ message }: Error): void => void warnings.push(message);
  process.on('warning', record);
  try {
    await program();
    await new Promise(setImmediate);
    return warnings.join('\n');
  } catch (error) {
    return (error as Error).message;
  } finally {
    process.off('warning', record);
  }
}

describe('a mistake', () => {
  for (const [group, mistakes] of Object.entries(groups))
    for (const { what, program, says } of mistakes)
      it(`of ${group} says what to do: ${what}`, async () => {
        assert.match(await answerTo(program), says);
      });

  it('that no error can say is one for the compiler of types', () => {
    const x = ones([2]);
    // @ts-expect-error the shape is a property
    assert.throws(() => x.shape(), /shape is not a function/);
    // @ts-expect-error a promise has no elements: `await` is missing
    assert.equal(x.read()[0], undefined);
  });
});
