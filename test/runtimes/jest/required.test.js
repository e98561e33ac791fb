// jest's own `require` loads no ES modules; `import()` does, with --experimental-vm-modules.
let shardwise;
let distributed;

beforeAll(async () => {
  shardwise = await import('shardwise');
  distributed = await import('shardwise/distributed');
});

test('a model trains, with arrays and objects of the test', async () => {
  const { nn, ones, optim, tensor, tree } = shardwise;
  const model = new nn.Linear(2, 1);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 });
  const before = model.weight.tolist();
  model(tensor(new Float32Array([1, 2])))
    .sum()
    .backward();
  optimizer.step();
  expect(model.weight.tolist()).not.toEqual(before);
  expect(tree.map((t) => t.mul(2), { a: [ones([1])] }).a[0].tolist()).toEqual([2]);
  expect(await ones([2]).read()).toEqual(new Float32Array([1, 1]));
  expect(() => ones([2]).add(ones([3]))).toThrow(shardwise.ShapeError);
});

test('ranks run in one process', async () => {
  const { allReduce, launch } = distributed;
  const sums = await launch(2, async (rank) => {
    const t = shardwise.tensor([rank + 1]);
    allReduce(t);
    return t.itemAsync();
  });
  expect(sums).toEqual([3, 3]);
});
