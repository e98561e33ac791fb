/** Plans of random programs compute what their graphs compute op by op. */
import fc from 'fast-check';
import { randn } from '../../../lib/index.js';
import { assertSameAsSteps } from './lowered.js';
import { programOf, programs, SHAPES } from './random-programs.js';

describe('plans of random programs', () => {
  it('compute what the graphs compute op by op, to the bit, also what they change', function () {
    this.timeout(60_000);
    fc.assert(
      fc.property(programs(25), (steps) => {
        const inputs = SHAPES.map((shape) => randn([...shape]));
        assertSameAsSteps(programOf(steps), inputs);
      }),
      { numRuns: 150 },
    );
  });
});
