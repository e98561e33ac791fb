/** An error that nobody catches begins with its message and the line of the program. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { programArguments } from '../run-program.js';

describe('an uncaught error of the library', () => {
  for (const place of ['module', 'timer', 'promise'])
    it(`begins with the message and the line of the program, thrown in a ${place}`, () => {
      const { status, stderr } = spawnSync(
        process.execPath,
        [...programArguments('packaging/programs/uncaught'), place],
        { encoding: 'utf8' },
      );
      assert.equal(status, 1);
      const [first, , , call] = stderr.trimStart().split('\n');
      assert.match(first ?? '', /^ShapeError \[ERR_SHAPE\]: matmul: inner sizes differ/);
      assert.match(
        call ?? '',
        /^ {4}at (?:Timeout\.)?step \(.*[\\/]packaging[\\/]programs[\\/]uncaught\.[jt]s:\d+:\d+\)/,
      );
      assert.doesNotMatch(stderr, /[\\/]dist[\\/]/);
    });
});
