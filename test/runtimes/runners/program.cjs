// What tests of all runners do with the library.
const assert = require('node:assert/strict');
const library = require('shardwise');
const { compile } = require('shardwise/compile');
const { assertClose } = require('shardwise/testing');

const { nn, ones, optim, ShapeError, tensor, tree } = library;

/** A model trains, with arrays and objects of the test, which are of jest's realm. */
async function trains() {
  const model = new nn.Linear(2, 1);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 });
  const before = model.weight.tolist();
  const loss = compile((x) => model(x).sum());
  loss(tensor(new Float32Array([1, 2]))).backward();
  optimizer.step();
  assert.notDeepEqual(model.weight.tolist(), before);
  assertClose(
    tree.map((t) => t.mul(2), { a: [ones([1])] }),
    { a: [tensor([2])] },
  );
  assertClose(await ones([2]).read(), new Float32Array([1, 1]));
  assert.throws(() => ones([2]).add(ones([3])), ShapeError);
}

/** The program of a rank. */
const fails = async (rank) => assertClose(rank, 0);

module.exports = { fails, library, trains };
