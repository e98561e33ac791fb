/**
 * A root hook of mocha for `npm run test:compiled`: the body of every test is a compiled function,
 * with the backend that SHARDWISE_TEST_BODIES names. A body that reads values runs uncompiled, and
 * every module that it calls is captured.
 */
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BackendName } from '../../lib/compile/backends.js';
import { observeCaptures } from '../../lib/compile/capture-record.js';
import { whyNotLowered } from '../../lib/compile/graph/lowering.js';
import { type ModuleCall, moduleCalls } from '../../lib/core/module-calls.js';
import { compile } from '../../lib/index.js';
import { type Failing, failing } from './failing.js';

type Body = (this: unknown, ...args: unknown[]) => unknown;

const { SHARDWISE_TEST_BODIES: bodies, SHARDWISE_TEST_BODIES_LOG: log } = process.env;
const backend = bodies as BackendName;
const folder = path.resolve(fileURLToPath(import.meta.url), '..', '..');

/** Graphs and breaks take longer than the ops themselves. */
const SLOWER = 4;

const frames = new WeakMap<object, Body>();

/** A module that is called while a test waits. */
function frame(module: object, given: readonly unknown[], call: ModuleCall): unknown {
  let found = frames.get(module);
  if (found === undefined) {
    found = compile((...args: unknown[]) => call(module, args), { backend });
    frames.set(module, found);
  }
  return found(...given);
}

const isAsync = (fn: unknown): boolean =>
  Object.getPrototypeOf(fn) === Object.getPrototypeOf(async () => {});

/** The context of a test, whose body may set a time of its own. */
function patient(context: Mocha.Context): Mocha.Context {
  const timeout = (ms?: number): unknown =>
    ms === undefined ? context.timeout() : context.timeout(ms * SLOWER);
  return Object.create(context, { timeout: { value: timeout } });
}

/** Runs the body compiled. Modules that it calls after its first `await` are frames as well. */
function compiled(body: Body): Body {
  return function (...args) {
    const context = patient(this as Mocha.Context);
    const bound = isAsync(body)
      ? async () => body.apply(context, args)
      : () => body.apply(context, args);
    const result = compile(bound, { backend })();
    if (!(result instanceof Promise)) return result;
    const before = moduleCalls.run;
    moduleCalls.run = frame;
    return result.finally(() => {
      moduleCalls.run = before;
    });
  };
}

const fileOf = (test: Mocha.Runnable): string => path.relative(folder, test.file ?? '');

/** The entry of a test that is listed as one that cannot hold. */
function listedOf(test: Mocha.Runnable): Failing | undefined {
  return failing.find(
    ({ file, title, backends }) =>
      file === fileOf(test) && title === test.fullTitle() && backends.includes(backend),
  );
}

/** A listed test has to fail, so that the list stays true, unless that depends on its numbers. */
function failingOnly(body: Body, { reason, isByChance }: Failing): Body {
  return async function (...args) {
    try {
      await body.apply(this, args);
    } catch {
      return;
    }
    if (isByChance) return;
    throw new Error(`passes, but test/compiled/failing.ts lists it because ${reason}`);
  };
}

/** Every listed test is there. */
function checkListed(root: Mocha.Suite): void {
  const titles = new Map<string, Set<string>>();
  root.eachTest((test) => {
    const file = fileOf(test);
    titles.set(file, (titles.get(file) ?? new Set()).add(test.fullTitle()));
  });
  for (const { file, title } of failing)
    if (titles.has(file) && !titles.get(file)?.has(title))
      throw new Error(`test/compiled/failing.ts lists "${title}" of ${file}, which is not there`);
}

if (log !== undefined)
  observeCaptures(({ graph, refusal, functionName }) =>
    appendFileSync(
      log,
      `${JSON.stringify({
        functionName,
        ops: graph?.callNodes.length,
        refusal,
        unlowered: graph && whyNotLowered(graph),
      })}\n`,
    ),
  );

export const mochaHooks = {
  beforeAll(this: Mocha.Context): void {
    checkListed(this.test?.parent as Mocha.Suite);
  },

  beforeEach(this: Mocha.Context): void {
    const test = this.currentTest;
    if (test?.fn === undefined) return;
    const listed = listedOf(test);
    const body = compiled(test.fn as Body);
    test.fn = (listed === undefined ? body : failingOnly(body, listed)) as Mocha.Func;
    if (listed !== undefined) test.title += ` (fails, because ${listed.reason})`;
    test.timeout(test.timeout() * SLOWER);
  },
};
