/** Optimizers of parameters that no module uses any more are errors: they would train nothing. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  FullyShardedDataParallel,
  fullyShard,
  initDeviceMesh,
  parallelizeModule,
} from '../../../lib/distributed.js';
import { nn, ones, optim } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const optimizers = {
  SGD: (params: Iterable<nn.Parameter>) => new optim.SGD(params, { lr: 0.1 }),
  AdamW: (params: Iterable<nn.Parameter>) => new optim.AdamW(params),
};

describe('an optimizer made before FullyShardedDataParallel', () => {
  for (const [name, make] of Object.entries(optimizers))
    for (const ranks of [1, 2])
      it(
        `throws in step() and says what to do: ${name}, ranks: ${ranks}`,
        withRanks(ranks, () => {
          const inner = new nn.Linear(4, 2);
          const optimizer = make(inner.parameters());
          const model = new FullyShardedDataParallel(inner);
          model(ones([1, 4]))
            .sum()
            .backward();
          assert.throws(() => optimizer.step(), {
            code: 'ERR_ARGUMENT',
            message: new RegExp(
              `${name}: parameter 0 trains nothing: "weight" was replaced by a flat parameter, ` +
                'unless \\{ useOrigParams: true \\} is passed\\. Make the optimizer after new Fully',
            ),
          });
          const later = make(model.parameters());
          later.step();
        }),
      );

  it(
    'trains with useOrigParams: true',
    withRanks(2, async () => {
      const inner = new nn.Linear(4, 2);
      const optimizer = optimizers.SGD(inner.parameters());
      const model = new FullyShardedDataParallel(inner, { useOrigParams: true });
      const loss = () => model(ones([1, 4])).sum();
      const before = loss();
      before.backward();
      optimizer.step();
      assert.ok((await loss().itemAsync()) < (await before.itemAsync()));
    }),
  );

  for (const [name, make] of Object.entries({
    AdamW: optimizers.AdamW,
    momentum: (params: Iterable<nn.Parameter>) => new optim.SGD(params, { lr: 0.1, momentum: 0.9 }),
  }))
    it(
      `throws with useOrigParams: true if it has stepped, and names the parameter: ${name}`,
      withRanks(2, () => {
        const inner = new nn.Linear(4, 2);
        const optimizer = make(inner.parameters());
        inner(ones([1, 4]))
          .sum()
          .backward();
        optimizer.step();
        const model = new FullyShardedDataParallel(inner, { useOrigParams: true });
        optimizer.zeroGrad();
        model(ones([1, 4]))
          .sum()
          .backward();
        assert.throws(
          () => optimizer.step(),
          /\.step: expected \w+ of parameter \d to have the shape .* Make the optimizer after Fully/,
        );
      }),
    );

  it(
    'throws of distributed parameters with useOrigParams: true, because plain ones replace them',
    withRanks(4, () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const inner = parallelizeModule(new nn.Linear(4, 4), mesh.get('tp'), ColwiseParallel());
      const optimizer = optimizers.SGD(inner.parameters());
      new FullyShardedDataParallel(inner, { useOrigParams: true, deviceMesh: mesh.get('dp') });
      assert.throws(() => optimizer.step(), /"weight" was replaced by a plain parameter/);
    }),
  );
});

describe('an optimizer of parameters that are whole for a time', () => {
  it(
    'is refused in summonFullParams',
    withRanks(2, () => {
      const model = new FullyShardedDataParallel(new nn.Linear(4, 2));
      assert.throws(
        () =>
          FullyShardedDataParallel.summonFullParams(model, () =>
            optimizers.AdamW(model.parameters()),
          ),
        /AdamW: parameter 0 trains nothing: "weight" is there in summonFullParams only/,
      );
    }),
  );

  it(
    'is refused between unshard() and reshard()',
    withRanks(2, () => {
      const model = fullyShard(new nn.Linear(4, 2));
      model.unshard();
      assert.throws(
        () => optimizers.SGD(model.parameters()),
        /SGD: parameter 0 trains nothing: "weight" is whole only until reshard\(\)/,
      );
      model.reshard();
      optimizers.SGD(model.parameters()).step();
    }),
  );
});
