/** The call site in user code that errors name. */
import assert from 'node:assert/strict';
import { atCallSite, callSite } from '../../lib/core/call-site.js';
import { noGrad } from '../../lib/index.js';

/** The place of a call with so many frames of the library between. */
function below(frames: number): string {
  let fn: () => string = callSite;
  for (let i = 0; i < frames; i++) fn = noGrad.bind(null, fn) as () => string;
  return fn();
}

function caller(): string {
  return callee();
}

function callee(): string {
  return callSite(caller);
}

describe('the call site', () => {
  it('is the innermost function of the program, however deep the stack of the library', () => {
    const depths = Array.from({ length: 400 }, (_, i) => (i < 200 ? i % 3 : (i * 7) % 25));
    const places = new Set(depths.map(below));
    assert.equal(places.size, 1);
    assert.match([...places][0] as string, /^below \(.*[\\/]call-site\.test\.[jt]s:\d+:\d+\)$/);
  });

  it('is that of each caller, if deep and shallow stacks alternate', () => {
    const shallow = (): string => below(0);
    for (let i = 0; i < 300; i++) {
      assert.match(i % 7 === 0 ? below(20) : shallow(), /^below /);
      assert.match(callSite(), /call-site\.test\.[jt]s/);
      assert.doesNotMatch(callSite(), /^below /);
    }
  });

  it('is empty if more library frames are on the stack than the search captures', () =>
    assert.equal(below(80), ''));

  it('has no name that only the place of a function suggests, such as that of an option', () => {
    const compile = (fn: () => string, _options: object): string => fn();
    const launch = { local: compile };
    const sites = [
      compile(() => callSite(), { fullgraph: true }),
      launch.local(() => callSite(), { timeoutMs: 1 }),
    ];
    for (const site of sites) assert.match(site, /^[^ ]*call-site\.test\.[jt]s:\d+:\d+$/);
  });

  it('has the names of functions, methods and functions that are called as methods', () => {
    class Model {
      forward(): string {
        return callSite();
      }
    }
    const steps = { train: () => callSite(), later: (): string => '' };
    Object.assign(steps, { later: () => callSite() });
    assert.match(new Model().forward(), /^forward \(/);
    assert.match(steps.train(), /^train \(/);
    assert.match(steps.later(), /^later \(/);
  });

  it('is outside of the given function', () => {
    function program(): string {
      return caller();
    }
    assert.match(program(), /^program /);
  });

  it('is that of the outermost atCallSite inside nested ones', () => {
    function program(): string {
      return atCallSite(() => atCallSite(() => below(3)));
    }
    assert.match(program(), /^program /);
    assert.match(below(3), /^below /);
  });

  it('is found without a change to stackTraceLimit and prepareStackTrace', () => {
    const { stackTraceLimit, prepareStackTrace } = Error;
    try {
      Error.stackTraceLimit = 3;
      Error.prepareStackTrace = () => 'mine';
      assert.match(below(2), /^below /);
      assert.equal(Error.stackTraceLimit, 3);
      assert.equal(new Error().stack, 'mine');
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
      Error.prepareStackTrace = prepareStackTrace;
    }
  });
});
