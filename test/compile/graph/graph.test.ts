/** Edits of graphs: what stands for a value. */
import assert from 'node:assert/strict';
import type { GraphModule, Node } from '../../../lib/compile/index.js';
import { CompileError, compile, rand, type Tensor } from '../../../lib/index.js';

/** Edits the graph of a function, and returns what the edited function gives beside the old one. */
function edited(
  fn: (x: Tensor) => Tensor | readonly Tensor[],
  edit: (module: GraphModule, calls: Node[]) => void,
): unknown {
  const backend = (module: GraphModule) => {
    edit(module, module.graph.callNodes);
    module.recompile();
    return module.forward.bind(module);
  };
  return compile(fn, { backend })(rand([2]));
}

describe('Graph.replaceUses', () => {
  it('takes nodes of one output, and values', () => {
    const x = rand([2]);
    const fn = (t: Tensor): Tensor => t.mul(2).exp().sin();
    for (const isValue of [false, true]) {
      const backend = (module: GraphModule) => {
        const [mul, exp] = module.graph.callNodes as [Node, Node];
        if (isValue) module.graph.replaceUses({ node: exp, output: 0 }, { node: mul, output: 0 });
        else module.graph.replaceUses(exp, mul);
        module.recompile();
        return module.forward.bind(module);
      };
      assert.deepEqual(compile(fn, { backend })(x).tolist(), x.mul(2).sin().tolist());
    }
  });

  it('refuses nodes of several outputs, and what is neither a value nor a node', () => {
    const several = (t: Tensor): Tensor => {
      const { values } = t.sort();
      return values.exp();
    };
    const refused: [RegExp, (module: GraphModule, calls: Node[]) => void][] = [
      [/got %sort, which has 2$/, ({ graph }, [sort, exp]) => graph.replaceUses(sort!, exp!)],
      [/got %sort, which has 2$/, ({ graph }, [sort, exp]) => graph.replaceUses(exp!, sort!)],
      [/got 'exp'$/, ({ graph }, [sort]) => graph.replaceUses('exp' as never, sort!)],
      [/got null$/, ({ graph }, [, exp]) => graph.replaceUses(exp!, null as never)],
    ];
    for (const [message, edit] of refused)
      assert.throws(
        () => edited(several, edit),
        (error: Error) => error instanceof CompileError && message.test(error.message),
      );
  });
});
