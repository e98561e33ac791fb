/** Compiled functions when memory runs out: what they let go, and which error it is. */
import assert from 'node:assert/strict';
import { runRefused } from '../native/refusals.js';
import { runProgramWith } from '../run-program.js';
import { skipWithoutTools } from '../skip.js';

interface Report {
  calls: [outcome: string, mib: number][];
  last: string;
}

interface Refused {
  errors: { name: string; op: string; message: string }[];
  result: number;
  bytes: number;
}

const LIMIT = 24 * 2 ** 20;

for (const backend of ['inductor', 'aot_eager'])
  describe(`a function compiled by ${backend}`, function () {
    this.timeout(60_000);

    it('lets go of arguments and buffers at the end of each call, also of one that failed', async () => {
      const { calls, last } = await runProgramWith<Report>(
        { SHARDWISE_CPU_MEMORY_LIMIT: String(LIMIT) },
        'compile/programs/memory-limit',
        backend,
      );
      const [fits, fails] = [
        ['value', 0],
        ['OutOfMemoryError', 0],
      ];
      assert.deepEqual(calls, [fits, fails, fits, fails, fails, fits, fits]);
      assert.equal(last, 'value');
    });

    it('names the op whose kernel found no memory, and works once there is some', async function () {
      skipWithoutTools(this, 'g++');
      const { errors, result, bytes } = await runRefused<Refused>(
        'SHARDWISE_TEST_NO_SCRATCH',
        {},
        'compile/programs/refused-scratch',
        backend,
      );
      for (const { name, message } of errors) {
        assert.equal(name, 'OutOfMemoryError');
        assert.match(message, /matmul.*the kernel found no memory for its scratch space/);
      }
      assert.equal(errors[0]?.op, 'matmul');
      assert.equal(result, 8 * 8 * 8 * 2);
      assert.ok(bytes < 4096, `${bytes} bytes are left`);
    });
  });
