/** Stacks of errors show the frames of the program, not those of the library. */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { Worker } from 'node:worker_threads';
import { ShardwiseError } from '../../lib/core/errors.js';
import { nn, ones, ShapeError } from '../../lib/index.js';

function errorOf(fn: () => unknown): ShardwiseError {
  try {
    fn();
  } catch (error) {
    if (error instanceof ShardwiseError) return error;
  }
  assert.fail('threw no error of the library');
}

const frames = (error: Error): string[] =>
  (error.stack ?? '').split('\n').filter((line) => line.startsWith('    at '));

describe('stacks of errors', () => {
  function multiply(): unknown {
    return ones([2, 3]).matmul(ones([2, 3]));
  }

  it('begin at the call of the program and have no frame of the library', () => {
    const error = errorOf(multiply);
    assert.match(frames(error)[0] ?? '', /at multiply \(.*user-stack\.test\.[jt]s/);
    assert.doesNotMatch(frames(error).join('\n'), /[\\/](?:lib|dist)[\\/](?:core|ops|eager)[\\/]/);
    assert.ok(error.stack?.startsWith(`ShapeError [ERR_SHAPE]: ${error.message}\n`));
  });

  it('have no names that only the place of a function suggests, such as that of an option', () => {
    const compile = (fn: () => void, _options: object): void => fn();
    const error = errorOf(() => compile(() => void ones([2]).add(ones([3])), { fullgraph: true }));
    assert.match(frames(error)[0] as string, /^ {4}at [^ ]*user-stack\.test\.[jt]s:\d+:\d+$/);
  });

  it('reach the program through any number of modules, and name the module', () => {
    let model: nn.Linear | nn.Sequential = new nn.Linear(2, 2);
    for (let i = 0; i < 12; i++) model = new nn.Sequential(model);
    const error = errorOf(() => model(ones([2, 3])));
    assert.match(frames(error)[0] ?? '', /user-stack\.test\.[jt]s/);
    assert.match(error.stack ?? '', /in the module Sequential at (?:0\.){11}0 \(Linear\)\n {4}at /);
  });

  it('are complete with SHARDWISE_FULL_STACK=1', () => {
    process.env['SHARDWISE_FULL_STACK'] = '1';
    try {
      assert.match(frames(errorOf(multiply))[0] ?? '', /matmul/);
    } finally {
      delete process.env['SHARDWISE_FULL_STACK'];
    }
  });

  it('can be replaced, as those of any error', () => {
    const error = errorOf(multiply);
    error.stack = 'mine';
    assert.equal(error.stack, 'mine');
    assert.deepEqual(Object.keys(error), ['code']);
  });
});

describe('printed errors', () => {
  it('have their details in one line, and omit them if the error is not caught', () => {
    const error = errorOf(() => ones([2, 3]).item());
    assert.match(
      inspect(error),
      /\{\n {2}code: 'ERR_SHAPE',\n {2}details: \{ op: 'item', shape: \[ 2, 3 \] \}\n\}$/,
    );
    assert.match(inspect(error, { customInspect: false }), /\{\n {2}code: 'ERR_SHAPE'\n\}$/);
    assert.doesNotMatch(inspect(new ShapeError('short')), /details/);
    const { name, code, message, details } = error;
    assert.deepEqual(JSON.parse(JSON.stringify(error)), { name, code, message, details });
  });

  it('keep message and name between threads', async () => {
    const worker = new Worker(
      "require('node:worker_threads').parentPort.once('message', (e) => { throw e; })",
      { eval: true },
    );
    const heard = new Promise<Error>((resolve) => worker.once('error', resolve));
    const error = errorOf(() => ones([2, 3]).item());
    worker.postMessage(error);
    assert.equal((await heard).message, error.message);
  });
});
