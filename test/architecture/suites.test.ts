/** No file of tests is left out: `npm test` runs each once, or a command of package.json names it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { globSync } from 'tinyglobby';

const root = path.resolve(import.meta.dirname, '../..');

/** The patterns that mocha reads with these variables. */
function patternsWith(variables: NodeJS.ProcessEnv): { spec: string[]; ignore: string[] } {
  const file = path.join(root, '.mocharc.cjs');
  const require = createRequire(import.meta.url);
  const before = { ...process.env };
  const { argv } = process;
  delete require.cache[file];
  Object.assign(process.env, variables);
  process.argv = argv.slice(0, 2); // no named file
  try {
    return require(file);
  } finally {
    process.argv = argv;
    process.env = before;
    delete require.cache[file];
  }
}

const filesWith = (variables: NodeJS.ProcessEnv): string[] => {
  const { spec, ignore } = patternsWith(variables);
  return spec.flatMap((pattern) => globSync(pattern, { cwd: root, ignore }));
};

describe('the files of tests', () => {
  it('are run by npm test once, or by a command of their own', () => {
    const common = { SHARDWISE_TEST_GPU: '', SHARDWISE_TEST_BODIES: '' };
    const run = [
      ...filesWith({ ...common, SHARDWISE_TEST_ALONE: '' }),
      ...filesWith({ ...common, SHARDWISE_TEST_ALONE: '1' }),
      ...readFileSync(path.join(root, 'package.json'), 'utf8').matchAll(/test\/[\w/-]+\.test\.ts/g),
    ].map(String);
    assert.deepEqual(run.sort(), globSync('test/**/*.test.ts', { cwd: root }).sort());
  });
});
