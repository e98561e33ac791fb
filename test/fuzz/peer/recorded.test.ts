/**
 * Recorded random programs give the answers of PyTorch. `npm run fuzz -- --peer torch --record`
 * writes the file.
 */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { difference } from './compare.js';
import { linesOf, type Recorded } from './run.js';
import { runHere } from './shrink.js';

const recorded = linesOf(fileURLToPath(new URL('recorded.jsonl', import.meta.url))) as Recorded[];

describe('random programs', () => {
  it('are recorded by hundreds, and most of their steps run', () => {
    const steps = recorded.reduce((sum, { program }) => sum + program.steps.length, 0);
    const refused = recorded.reduce((sum, { answer }) => sum + answer.refused.length, 0);
    assert.ok(
      recorded.length >= 500 && steps > 5000 && refused < steps / 5,
      `${recorded.length} programs, ${refused} of ${steps} steps refused`,
    );
  });

  for (let first = 0; first < recorded.length; first += 50) {
    it(`${first} to ${Math.min(first + 50, recorded.length) - 1} give PyTorch's results`, () => {
      for (const { program, answer } of recorded.slice(first, first + 50)) {
        const ours = runHere(program);
        const found = typeof ours === 'string' ? ours : difference(ours, answer);
        assert.equal(
          found,
          null,
          'program ' +
            `${program.seed}:\n${program.steps.map((step) => JSON.stringify(step)).join('\n')}`,
        );
      }
    });
  }
});
