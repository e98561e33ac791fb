/**
 * Serves embeddings of texts over HTTP. Requests that wait together are one batch; SIGTERM answers
 * what is open and ends.
 *
 *   node --import tsx examples/serve.ts --port 8080
 *   curl --data 'a text' localhost:8080
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { Command } from 'commander';
import {
  cuda,
  type DeviceName,
  manualSeed,
  nn,
  noGrad,
  scope,
  type Tensor,
  tensor,
} from '../lib/index.js';
import { count, deviceName } from './common/arguments.js';

const FEATURES = 64;
const LONGEST = 256;
const PADDING = 0; // a byte that texts have not

/** The mean of a transformer's results over the bytes of a text: [batch, bytes] to [batch, 64]. */
class Embedder extends nn.Module<[ids: Tensor], Tensor> {
  bytes = new nn.Embedding(256, FEATURES);
  positions = new nn.Embedding(LONGEST, FEATURES);
  layers = new nn.TransformerEncoder(
    new nn.TransformerEncoderLayer(FEATURES, 4, { dimFeedforward: 256, batchFirst: true }),
    2,
  );

  forward(ids: Tensor): Tensor {
    const isPadding = ids.eq(PADDING);
    const positions = this.positions.weight.narrow(0, 0, ids.size(1));
    const x = this.layers(this.bytes(ids).add(positions), { srcKeyPaddingMask: isPadding });
    const weights = isPadding.logicalNot().to(x.dtype).unsqueeze(-1);
    return nn.functional.normalize(x.mul(weights).sum(1).div(weights.sum(1)), { dim: -1 });
  }
}

interface Waiting {
  ids: number[];
  resolve(embedding: number[]): void;
  reject(error: unknown): void;
}

/** Answers what waits, a batch at a time: while one is computed, the next one gathers. */
class Batches {
  private readonly waiting: Waiting[] = [];
  private isRunning = false;

  private readonly model: Embedder;
  private readonly device: DeviceName;
  private readonly most: number;

  constructor(model: Embedder, device: DeviceName, most: number) {
    this.model = model;
    this.device = device;
    this.most = most;
  }

  embed(of: string): Promise<number[]> {
    const ids = [...Buffer.from(of.replaceAll('\0', ' ')).subarray(0, LONGEST)];
    return new Promise((resolve, reject) => {
      this.waiting.push({ ids: ids.length > 0 ? ids : [32], resolve, reject });
      void this.run();
    });
  }

  private async run(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    await new Promise(setImmediate); // requests of one turn are one batch
    while (this.waiting.length > 0) {
      const batch = this.waiting.splice(0, this.most);
      try {
        const rows = await this.compute(batch.map(({ ids }) => ids));
        for (const [i, { resolve }] of batch.entries()) resolve(rows[i] as number[]);
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.isRunning = false;
  }

  private async compute(texts: number[][]): Promise<number[][]> {
    const longest = Math.max(...texts.map((ids) => ids.length));
    const padded = texts.map((ids) => [...ids, ...Array(longest - ids.length).fill(PADDING)]);
    const result = noGrad(() =>
      scope(() => this.model(tensor(padded, { dtype: 'int64', device: this.device }))),
    );
    const values = await result.read(); // the event loop goes on
    result.dispose();
    return texts.map((_, i) => [...values.subarray(i * FEATURES, (i + 1) * FEATURES)].map(Number));
  }
}

const options = new Command('serve')
  .option('--port <n>', '0 takes a free one', count(0), 8080)
  .option('--device <name>', 'cpu or cuda', deviceName, cuda.isAvailable() ? 'cuda' : 'cpu')
  .option('--batch <n>', 'most texts of a batch', count(1), 50)
  .parse()
  .opts<{ port: number; device: DeviceName; batch: number }>();

manualSeed(0);
const model = new Embedder().to(options.device).eval();
const batches = new Batches(model, options.device, options.batch);
const server = createServer(async (request, response) => {
  try {
    const embedding = await batches.embed(await text(request));
    response.setHeader('content-type', 'application/json').end(JSON.stringify(embedding));
  } catch (error) {
    response.writeHead(500).end(String(error));
  }
});
server.listen(options.port, () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://localhost:${port} embeds texts on ${options.device}`);
});
process.once('SIGTERM', () => server.close(() => console.log('all requests are answered')));
