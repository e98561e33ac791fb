/** What a backward pass through distributed layers holds. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  destroyProcessGroup,
  initDeviceMesh,
  initProcessGroup,
  PrepareModuleInput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import { memory, nn, randn, scope } from '../../lib/index.js';

const WIDTH = 64;
const ROWS = 4096;

/** Sequence parallel layers: activations are gathered before each one and reduced after it. */
class Layers extends nn.Module {
  readonly layers: nn.ModuleList<nn.Sequential>;

  constructor(count: number) {
    super();
    const linear = (): nn.Linear => new nn.Linear(WIDTH, WIDTH, { bias: false });
    this.layers = new nn.ModuleList(
      Array.from({ length: count }, () => new nn.Sequential(linear(), linear())),
    );
  }

  override forward(x: ReturnType<typeof randn>): ReturnType<typeof randn> {
    let y = x;
    for (const layer of this.layers) y = scope(() => layer(y));
    return y;
  }
}

/** Bytes at the end of a backward pass, above those before it. */
function heldAfterBackward(count: number): number {
  const mesh = initDeviceMesh('cpu', [4]);
  const model = new Layers(count);
  parallelizeModule(model, mesh, {
    'layers.*': PrepareModuleInput({ inputLayouts: Shard(0), desiredInputLayouts: Replicate() }),
    'layers.*.0': ColwiseParallel(),
    'layers.*.1': RowwiseParallel({ outputLayouts: Shard(0) }),
  });
  const x = randn([ROWS / 4, WIDTH]);
  return scope(() => {
    const loss = model(x).square().sum();
    const before = memory.stats('cpu').allocatedBytes;
    loss.backward();
    return memory.stats('cpu').allocatedBytes - before;
  });
}

describe('a backward pass through tensor parallel layers', () => {
  it('frees the gradients of activations with each layer', async () => {
    await initProcessGroup('fake', { rank: 0, worldSize: 4 });
    try {
      memory.collect();
      const more = heldAfterBackward(10) - heldAfterBackward(2);
      // A whole gradient of activations has ROWS * WIDTH * 4 bytes; a layer has several.
      assert.ok(more <= (ROWS * WIDTH * 4) / 2, `${more} bytes`);
    } finally {
      destroyProcessGroup();
    }
  });
});
