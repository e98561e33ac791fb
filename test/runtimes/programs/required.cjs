// The package in CommonJS, and in a worker thread.
const assert = require('node:assert/strict');
const { isMainThread, parentPort, Worker } = require('node:worker_threads');
const { Tensor, tensor } = require('shardwise');

const sum = tensor([1, 2, 3]).sum().item();
if (isMainThread) {
  assert.equal(sum, 6);
  import('shardwise').then((imported) => assert.equal(imported.Tensor, Tensor));
  const worker = new Worker(__filename);
  worker.on('message', (message) => assert.equal(message, sum));
  worker.on('exit', (code) => assert.equal(code, 0));
} else {
  parentPort.postMessage(sum);
}
