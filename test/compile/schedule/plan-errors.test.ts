/** Errors of plans are those of the calls. */
import assert from 'node:assert/strict';
import { buildPlan } from '../../../lib/compile/schedule/plan.js';
import {
  FreedError,
  IndexError,
  int64,
  OutOfMemoryError,
  ones,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { addon } from '../../../lib/runtime.js';
import { allocatedBytes, lower, type Program, runSlowly } from './lowered.js';

const whole = (...values: number[]): Tensor => tensor(values, { dtype: int64 });

/** Small commands then run at once, and report their errors where they are called. */
const finishQueue = (): unknown => zeros([1]).item();

/** The error of the calls, and that of the plan, on inputs of the same kind. */
function errors(fn: Program, inputs: () => Tensor[], broken: () => Tensor[]): [Error, Error] {
  const graph = lower(fn, inputs());
  const plan = buildPlan(graph);
  assert.equal(plan.summary.single, 0);
  const [calls, commands] = [
    (given: Tensor[]) => runSlowly(graph, given),
    (given: Tensor[]) => plan.run(given),
  ].map((run) => {
    const given = broken();
    finishQueue();
    try {
      run(given);
    } catch (error) {
      return error as Error;
    }
    return assert.fail('no error');
  });
  return [calls as Error, commands as Error];
}

const vectors = (): Tensor[] => [ones([4]), ones([4])];

describe('an error of a plan', () => {
  const freed: Record<string, () => Tensor[]> = {
    'a disposed input': () => {
      const [a, b] = vectors() as [Tensor, Tensor];
      b.dispose();
      return [a, b];
    },
    'an input whose memory was resized away': () => {
      const [a, b] = vectors() as [Tensor, Tensor];
      b.untypedStorage().resize_(0);
      return [a, b];
    },
    'an input whose memory became too small': () => {
      const [a, b] = vectors() as [Tensor, Tensor];
      b.untypedStorage().resize_(8);
      return [a, b];
    },
  };
  for (const [what, broken] of Object.entries(freed))
    it(`for ${what} is that of the call`, () => {
      const [expected, actual] = errors((a, b) => [a.add(1).mul(b)], vectors, broken);
      assert.ok(actual instanceof FreedError);
      assert.equal(actual.message, expected.message);
    });

  it('for an index out of range names the op and its operands', () => {
    const program: Program = (x, index) => [x.add(1).indexSelect(0, index).mul(2)];
    const [expected, actual] = errors(
      program,
      () => [ones([4]), whole(1)],
      () => [ones([4]), whole(9)],
    );
    assert.ok(actual instanceof IndexError);
    assert.equal(actual.message, expected.message);
    assert.match(actual.message, /^indexSelect: .*\n {2}operands: float32\[4\] on cpu; int64\[1\]/);
  });

  it('leaves no memory behind, and what was written before it', () => {
    const graph = lower(
      (x, index) => [x.add_(1), x.indexSelect(0, index).mul(2)],
      [ones([4]), whole(1)],
    );
    const plan = buildPlan(graph);
    const [x, index] = [ones([4]), whole(9)];
    const before = allocatedBytes();
    finishQueue();
    assert.throws(() => plan.run([x, index]), IndexError);
    assert.ok(allocatedBytes() <= before);
    assert.deepEqual(x.tolist(), [2, 2, 2, 2]);
    assert.deepEqual((plan.run([x, whole(1)])[1] as Tensor).tolist(), [6]);
  });

  it('for a failure behind large commands comes with the results that it affects', () => {
    const large = 1 << 20;
    const program: Program = (x, index) => {
      const y = x.add(1);
      return [y, y.indexSelect(0, index).mul(2)];
    };
    const plan = buildPlan(lower(program, [ones([large]), whole(1)]));
    const [y, picked] = plan.run([ones([large]), whole(large)]) as [Tensor, Tensor];
    assert.throws(() => picked.tolist(), IndexError);
    assert.equal(y.narrow(0, 0, 1).item(), 2);
    assert.deepEqual((plan.run([ones([large]), whole(1)])[1] as Tensor).tolist(), [4]);
  });

  it('for a failure of a large command comes from the run where commands block', () => {
    const large = 1 << 20;
    const program: Program = (x, index) => [x.add(1).indexSelect(0, index).mul(2)];
    addon.setBlocking(true);
    try {
      const [expected, actual] = errors(
        program,
        () => [ones([large]), whole(1)],
        () => [ones([large]), whole(large)],
      );
      assert.ok(actual instanceof IndexError);
      assert.equal(actual.message, expected.message);
    } finally {
      addon.setBlocking(false);
    }
  });

  it('for a value that was never computed names the call that needs it', () => {
    const large = 1 << 20;
    const lost = (): Tensor => {
      const t = zeros([large]).add(1).indexSelect(0, whole(large));
      assert.throws(() => t.tolist(), IndexError);
      return t;
    };
    const [expected, actual] = errors(
      (a, b) => [a.add(1).mul(b)],
      () => [ones([1]), ones([1])],
      () => [ones([1]), lost()],
    );
    assert.equal(actual.message.split('\n')[0], expected.message.split('\n')[0]);
    assert.match(actual.message, /^mul: /);
  });

  // More than an address space: machines with much memory refuse it, too.
  it('for memory that runs out names the op that does not fit', () => {
    const program: Program = (x) => [
      x
        .add(1)
        .expand([2 ** 30, 2 ** 17])
        .add(1)
        .sum(),
    ];
    const graph = lower(program, [zeros([1])]);
    const plan = buildPlan(graph);
    assert.equal(plan.summary.segments, 1);
    for (const run of [() => runSlowly(graph, [zeros([1])]), () => plan.run([zeros([1])])])
      assert.throws(run, (error) => {
        assert.ok(error instanceof OutOfMemoryError);
        assert.match(error.message, /^add: out of memory: 562949953421312 bytes were requested/);
        return true;
      });
  });
});
