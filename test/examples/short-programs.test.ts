/** The examples of one file: a server, images, an op of one's own, and a plan. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { loader } from '../run-program.js';
import { exampleFile, runExample } from './run-example.js';

describe('examples/images', () => {
  it('learns digits, and prints what it gets right after each epoch', () => {
    const { status, stdout, stderr } = runExample('images', '--epochs', '2', '--images', '2000');
    assert.equal(status, 0, stderr);
    const shares = [...stdout.matchAll(/^epoch \d: ([\d.]+) % of unseen digits/gm)].map(
      ([, share]) => Number(share),
    );
    assert.equal(shares.length, 2);
    assert.ok((shares[1] as number) > 40, stdout); // one digit of ten is 10 %
  });
});

describe('examples/own-op', () => {
  it('checks its gradient, compiles, and runs on rows and on columns', () => {
    const { status, stdout, stderr } = runExample('own-op');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^its gradient is that of finite differences$/m);
    assert.match(stdout, /^Shard\(0\) gives Shard\(0\), with the gradient of one rank$/m);
    assert.match(stdout, /^Shard\(1\) gives Partial\(sum\), with the gradient of one rank$/m);
  });
});

describe('examples/plan', () => {
  it('compares four layouts, and says which one is the fastest that fits', () => {
    const { status, stdout, stderr } = runExample('plan', '--layers', '1', '--gib', '12');
    assert.equal(status, 0, stderr);
    for (const layout of ['dp', 'fsdp', 'tp', 'fsdp x tp'])
      assert.match(stdout, new RegExp(`^${layout} +[\\d.]+ ms`, 'm'));
    assert.match(stdout, /^The fastest that fits is \S.*: [\d.]+ ms$/m);
  });
});

describe('examples/serve', () => {
  let server: ChildProcess;
  let url: string;
  let lines: AsyncIterator<string>;

  before(async () => {
    server = spawn(
      process.execPath,
      [...loader, exampleFile('serve'), '--port', '0', '--device', 'cpu'],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    lines = createInterface({ input: server.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
    const { value } = await lines.next();
    [url = ''] = /http:\/\/localhost:\d+/.exec(value) ?? [];
  });
  after(() => server.kill('SIGKILL'));

  const embed = async (text: string): Promise<number[]> => {
    const response = await fetch(url, { method: 'POST', body: text });
    return (await response.json()) as number[];
  };

  it('embeds a text alike alone and in a batch of others', async () => {
    const alone = await embed('a text');
    assert.equal(alone.length, 64);
    const texts = Array.from({ length: 50 }, (_, i) => (i === 7 ? 'a text' : 'x'.repeat(1 + i)));
    const together = (await Promise.all(texts.map(embed)))[7];
    alone.forEach((value, i) => {
      assert.ok(Math.abs(value - (together?.[i] as number)) < 1e-5);
    });
  });

  it('answers what is open at SIGTERM, and ends with 0', async () => {
    const open = Array.from({ length: 50 }, (_, i) => embed(`text ${i}`));
    await open[0];
    server.kill('SIGTERM');
    const ended = once(server, 'exit');
    const answers = await Promise.allSettled(open);
    assert.deepEqual(
      answers.filter(({ status }) => status === 'rejected'),
      [],
    );
    assert.equal((await lines.next()).value, 'all requests are answered');
    assert.deepEqual(await ended, [0, null]);
  });
});
