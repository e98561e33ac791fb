/** Fused graphs of random programs compute what the graphs compute op by op. */
import fc from 'fast-check';
import { randn } from '../../../lib/index.js';
import { programOf, programs, SHAPES } from '../schedule/random-programs.js';
import { fusedGraph } from './fused.js';

const actions =
  'pointwise pointwise pointwise pointwise broadcast broadcast rounded rounded view view ' +
  'product reduction inPlace copyInto random joined';

describe('fused graphs of random programs', () => {
  it('compute what the graphs compute op by op, to the bit, also what they change', function () {
    this.timeout(60_000);
    fc.assert(
      fc.property(programs(30), (steps) => {
        const inputs = SHAPES.map((shape) => randn([...shape]));
        fusedGraph(programOf(steps, actions.split(' ')), inputs);
      }),
      { numRuns: 60 },
    );
  });
});
