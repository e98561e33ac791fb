/**
 * Sums of the sizes that go by packets and by lines between GPUs, checked element by element. Short,
 * because scripts/gpu-sanitize-sums runs each rank under compute-sanitizer.
 * usage: peer-sums.ts [cuda|cpu], with torchrun's variables
 */
import {
  allReduce,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  initProcessGroup,
} from '../../../lib/distributed.js';
import { arange, type DType, float32, int64, type Tensor, zeros } from '../../../lib/index.js';

const device = (process.argv[2] ?? 'cuda') as 'cpu' | 'cuda';
const SIZES = [1, 1000, 32_768, 65_537, 300_001];

const valuesOf = (rank: number, count: number, dtype: DType): Tensor =>
  arange(count, { dtype: int64, device }).add(rank).remainder(5).to(dtype);

await initProcessGroup({ timeoutMs: 240_000 });
let wrong = 0;
for (const dtype of [float32, int64])
  for (const count of SIZES) {
    const sum = valuesOf(getRank(), count, dtype);
    allReduce(sum);
    const expected = zeros([count], { dtype, device });
    for (let rank = 0; rank < getWorldSize(); rank++) expected.add_(valuesOf(rank, count, dtype));
    wrong += Number(await sum.ne(expected).sum().itemAsync());
  }
console.log(`rank ${getRank()}: ${wrong} wrong elements`);
destroyProcessGroup();
process.exitCode = wrong === 0 ? 0 : 1;
