/** Unexpected values in messages, of any kind, and of environment variables. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { ArgumentError, compile } from '../../lib/index.js';
import { loader } from '../run-program.js';

const cyclic: unknown[] = [1];
cyclic.push(cyclic);
let deep: unknown = 1;
for (let i = 0; i < 200_000; i++) deep = [deep];
const wide = Array.from({ length: 1e6 }, (_, i) => i);
const bushy = Array.from({ length: 50 }, () =>
  Array.from({ length: 50 }, () => Array.from({ length: 50 }, () => 'leaf')),
);

describe('errors about arguments', () => {
  for (const [what, value] of Object.entries({
    cyclic,
    deep,
    wide,
    bushy,
    sparse: new Array(2 ** 32 - 1),
    text: 'x'.repeat(1e6),
  })) {
    it(`show a ${what} value in at most 1000 characters`, () => {
      assert.throws(
        () => compile(value as () => void),
        (error: Error) => error instanceof ArgumentError && error.message.length < 1000,
      );
    });
  }

  it('show a short list completely', () => {
    assert.throws(
      () => compile([1, ['a', [2n]]] as unknown as () => void),
      /got \[1, \['a', \[2n\]\]\]$/,
    );
  });
});

describe('SHARDWISE_CPU_MEMORY_LIMIT', () => {
  const index = new URL(`../../lib/index${loader.length > 0 ? '.ts' : '.js'}`, import.meta.url)
    .href;
  for (const limit of ['abc', '1e9', '64MiB', '-1']) {
    it(`is named by the error if it is '${limit}'`, () => {
      const script = `import(${JSON.stringify(index)}).then(({ ones }) => ones([4])).then(() => console.log('none'), (error) => console.log(error.message));`;
      const { stdout, stderr } = spawnSync(process.execPath, [...loader, '-e', script], {
        encoding: 'utf8',
        env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: limit },
      });
      assert.match(
        stdout,
        new RegExp(`SHARDWISE_CPU_MEMORY_LIMIT is '${limit}': expected a whole number of bytes`),
        stderr,
      );
    });
  }
});
