/** Programs that measure GPUs fail with a clear message on a machine without one. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(import.meta.url);
const folder = path.resolve(path.dirname(here), '..', '..', 'bench');

/** Runs a program as on a machine without the CUDA part. */
function withoutGpu(program: string, ...args: string[]): { status: number | null; stderr: string } {
  const command = [...process.execArgv, path.join(folder, program + path.extname(here)), ...args];
  const { status, stderr } = spawnSync(process.execPath, command, {
    encoding: 'utf8',
    env: { ...process.env, SHARDWISE_CUDA_BACKEND: '/nowhere/cuda-backend.so' },
  });
  return { status, stderr };
}

describe('a program that measures GPUs', () => {
  for (const program of ['gpu/run', 'gpu/profile', 'gpus/run', 'gpus/collectives'])
    it(`says what is missing without a GPU, and prints no stack: ${program}`, () => {
      const { status, stderr } = withoutGpu(program);
      assert.equal(status, 1);
      assert.match(
        stderr,
        /^device "cuda:0" is not available: .*\n {2}tried \/nowhere\/cuda-backend\.so/m,
      );
      assert.doesNotMatch(stderr, /^ +at /m);
    });

  it('lists the rows if a name is misspelt', () => {
    const { status, stderr } = withoutGpu('gpu/run', 'matmull');
    assert.equal(status, 1);
    assert.match(stderr, /no row is called "matmull", and no group: there are matmul, /);
    assert.doesNotMatch(stderr, /^ +at /m);
  });
});
