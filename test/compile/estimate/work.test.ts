/** The work of single nodes of captured graphs. */
import assert from 'node:assert/strict';
import { computeWork } from '../../../lib/compile/estimate/work.js';
import type { Node } from '../../../lib/compile/graph/node.js';
import { aotAutograd, type GraphModule } from '../../../lib/compile/index.js';
import { amp, bfloat16, compile, randn } from '../../../lib/index.js';

describe('the work of a product', () => {
  it('runs at the rate of its operands, also where it writes float32', () => {
    const nodes: Node[] = [];
    const keep = (module: GraphModule) => {
      nodes.push(...module.graph.nodes);
      return module.forward.bind(module);
    };
    const backend = aotAutograd({ fwCompiler: keep, bwCompiler: keep });
    const [x, w] = [randn([2, 3]).requiresGrad_(), randn([3, 4]).requiresGrad_()];
    const compiled = compile(() => x.matmul(w), { backend, fullgraph: true });
    amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, compiled).sum().backward();
    const works = (name: string) =>
      nodes.filter(({ op }) => op?.name === name).map((node) => computeWork(node));
    const flops = 2 * 2 * 3 * 4;
    const bytesOf = (result: number): number => 2 * (2 * 3 + 3 * 4 + 2 * 4 - result) + 4 * result;
    assert.deepEqual(works('matmul'), [{ flops, dtype: 'bfloat16', bytes: bytesOf(0) }]);
    assert.deepEqual(
      works('wideProduct').sort((a, b) => (a?.bytes ?? 0) - (b?.bytes ?? 0)),
      [2 * 3, 3 * 4].map((result) => ({ flops, dtype: 'bfloat16', bytes: bytesOf(result) })),
    );
  });
});
