/**
 * Host time of forward and backward of a fully sharded model of 12 small blocks, on one rank of a
 * fake world of two: uncompiled, with compiled layers, and compiled as a whole, in turns.
 */
import {
  destroyProcessGroup,
  fullyShard,
  initDeviceMesh,
  initProcessGroup,
} from '../lib/distributed.js';
import { type CompileOptions, compile, nn, randn, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';
import { device, print } from './measure.js';
import { runProgram } from './program.js';

const BLOCKS = 12;
const WIDTH = 16;
const WARM_UP = 300;
const ROUNDS = 200;

type Model = nn.Module<[x: Tensor], Tensor>;
type Compiled = 'layers' | 'model' | null;

class Block extends nn.Module<[x: Tensor], Tensor> {
  up = new nn.Linear(WIDTH, 2 * WIDTH);
  down = new nn.Linear(2 * WIDTH, WIDTH);
  forward(x: Tensor): Tensor {
    return x.add(this.down(this.up(x).relu()));
  }
}

function stepOf(compiled: Compiled, backend: CompileOptions['backend']): () => void {
  const mesh = initDeviceMesh(device === 'cpu' ? 'cpu' : 'cuda', [2]);
  const blocks = Array.from({ length: BLOCKS }, () => new Block());
  const model = new nn.Sequential(...(blocks as never[])) as unknown as Model;
  model.to(device);
  for (const block of blocks) {
    fullyShard(block, { mesh });
    if (compiled === 'layers') block.compile({ backend });
  }
  fullyShard(model, { mesh });
  const run = compiled === 'model' ? compile(model, { backend, fullgraph: true }) : model;
  const x = randn([8, WIDTH], { device });
  return () => {
    scope(() => void run(x).sum().backward());
    for (const p of model.parameters()) p.grad = null;
  };
}

await runProgram(async () => {
  await initProcessGroup('fake', { rank: 0, worldSize: 2 });
  const cases = [
    ['uncompiled', stepOf(null, 'eager')],
    ['compiled layers', stepOf('layers', 'inductor')],
    ["compiled as a whole, 'aot_eager'", stepOf('model', 'aot_eager')],
    ["compiled as a whole, 'inductor'", stepOf('model', 'inductor')],
  ] as const;
  for (const [, step] of cases) for (let i = 0; i < WARM_UP; i++) step();
  const times = cases.map((): number[] => []);
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, [, step]] of cases.entries()) {
      const start = performance.now();
      step();
      times[i]?.push((performance.now() - start) * 1e3);
    }
  for (const [i, [name]] of cases.entries()) {
    const all = times[i] as number[];
    print({ name: `12 sharded blocks, ${name}`, unit: 'us', value: median(all), burst: 1 });
    print({
      name: `12 sharded blocks, ${name}, best`,
      unit: 'us',
      value: Math.min(...all),
      burst: 1,
    });
  }
  destroyProcessGroup();
});
