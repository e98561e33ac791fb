/**
 * Products on the GPU beside the same in float64: takes them as "MxNxK:layout", prints for each the
 * largest error, in parts of what the dtype allows, as a list of JSON. What computed them is told
 * on stderr under SHARDWISE_DEBUG=matmul.
 */
import { bfloat16, float64, randn, type Tensor } from '../../../lib/index.js';

const UNIT = 2 ** -8;

function error(text: string): number {
  const [sizes = '', layout = 'nt'] = text.split(':');
  const [m, n, k] = sizes.split('x').map(Number) as [number, number, number];
  const operand = (rows: number, columns: number, turned: boolean): Tensor => {
    const made = randn(turned ? [columns, rows] : [rows, columns], {
      device: 'cuda',
      dtype: bfloat16,
    });
    return turned ? made.t() : made;
  };
  const [x, w] = [operand(m, k, layout[0] === 't'), operand(k, n, layout[1] === 't')];
  const exact = (t: Tensor): Tensor => t.to('cpu').to(float64);
  const wanted = exact(x).matmul(exact(w));
  const allowed = wanted
    .abs()
    .mul(UNIT)
    .add((30 + 2 * k) * 1e-7);
  return exact(x.matmul(w)).sub(wanted).abs().div(allowed).amax().item() as number;
}

console.log(JSON.stringify(process.argv.slice(2).map(error)));
