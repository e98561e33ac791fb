// Gradients and reads, as a module and required, and what they throw.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { nn, Tensor, tensor } from 'shardwise';
import { compile } from 'shardwise/compile';

const require = createRequire(import.meta.url);
assert.equal(require('shardwise').Tensor, Tensor);
const { exports: entries } = require('shardwise/package.json');
for (const entry of Object.keys(entries).filter((name) => !name.endsWith('.json'))) {
  const name = `shardwise${entry.slice(1)}`;
  const [imported, required] = [await import(name), require(name)];
  const names = Object.keys(imported).filter((each) => !/^(default|module\.exports)$/.test(each));
  for (const each of names) assert.equal(imported[each], required[each], `${each} of ${name}`);
}
// the build keeps names
const classes = [Tensor, nn.Embedding, nn.Module, nn.TransformerEncoderLayer];
const names = ['Tensor', 'Embedding', 'Module', 'TransformerEncoderLayer'];
assert.deepEqual(
  classes.map(({ name }) => name),
  names,
);

const x = tensor(
  [
    [1, 2],
    [3, 4],
  ],
  { requiresGrad: true },
);
const y = x.matmul(x);
y.sum().backward();
assert.deepEqual(Array.from(await y.detach().read()), [7, 10, 15, 22]);
assert.deepEqual(x.grad.tolist(), [
  [7, 11],
  [9, 13],
]);

assert.throws(() => x.matmul(tensor([1, 2, 3])), /matmul/);

const wave = compile((t) => t.mul(2).sin().sum());
for (let run = 0; run < 2; run++) {
  const t = tensor([0.5, 1], { requiresGrad: true });
  const sum = wave(t);
  sum.backward();
  assert.equal(sum.item(), t.detach().mul(2).sin().sum().item());
  assert.deepEqual(t.grad.tolist(), t.detach().mul(2).cos().mul(2).tolist());
}
