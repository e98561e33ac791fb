/**
 * Compares products on the GPU with float64. Takes products as "MxNxK:layout" and prints, as JSON,
 * the largest error of each relative to the tolerance of the dtype. With SHARDWISE_DEBUG=matmul
 * the kernel of each product is reported on stderr.
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
