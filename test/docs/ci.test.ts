/** The programs and workflows of docs/ci.md, and the workflows of this repository. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { workflowFindings } from '../../scripts/check-workflows.js';
import { loader } from '../run-program.js';
import { ofThisCheckout, root } from './blocks.js';

const page = readFileSync(path.join(root, 'docs', 'ci.md'), 'utf8');
const blocksOf = (language: string): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(
    ([, text = '']) => text,
  );

describe('workflows', () => {
  it('are right, those of the repository and those that docs/ci.md shows', async () => {
    assert.equal(blocksOf('yaml').length, 2);
    assert.deepEqual(await workflowFindings(), []);
  });
});

describe('the suite of docs/ci.md', () => {
  const folder = path.join(root, '.dev', 'ci');
  before(() => {
    mkdirSync(folder, { recursive: true });
    const [program = ''] = blocksOf('js');
    writeFileSync(path.join(folder, 'two-gpus.mts'), ofThisCheckout(program));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const run = (setting: string): { status: number | null; text: string } => {
    const mocha = path.join(root, 'node_modules', 'mocha', 'bin', 'mocha.js');
    const args = [...loader, mocha, '--no-config', path.join(folder, 'two-gpus.mts')];
    const env = { ...process.env, SHARDWISE_TEST_GPU: setting, CUDA_VISIBLE_DEVICES: '' };
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8' });
    return { status, text: stdout + stderr };
  };

  it('is skipped with the reason where GPUs are missing', () => {
    const { status, text } = run('auto');
    assert.equal(status, 0, text);
    assert.match(text, /two GPUs \(skipped: needs 2 GPUs, found 0/);
    assert.match(text, /1 pending/);
  });

  it('fails where GPUs are required and missing', () => {
    const { status, text } = run('require');
    assert.equal(status, 1, text);
    assert.match(text, /SHARDWISE_TEST_GPU=require: "two GPUs" needs 2 GPUs, found 0/);
  });
});

describe('the commands of docs/ci.md that divide a suite', () => {
  let folder: string;
  const files = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => `test/${name}.test.js`);
  before(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-ci-'));
    mkdirSync(path.join(folder, 'test'));
    for (const file of files) writeFileSync(path.join(folder, file), '');
    const npx = path.join(folder, 'npx');
    writeFileSync(npx, '#!/bin/sh\nshift; for file in "$@"; do echo "$file"; done\n');
    chmodSync(npx, 0o755);
  });
  after(() => rmSync(folder, { recursive: true }));

  const shell = (script: string): string =>
    execFileSync('bash', ['-c', script], {
      cwd: folder,
      env: { ...process.env, PATH: `${folder}:${process.env['PATH']}` },
      encoding: 'utf8',
    });

  it('run each file on one GPU', () => {
    shell(blocksOf('sh')[0] as string);
    const logs = [0, 1, 2, 3].map((gpu) =>
      readFileSync(path.join(folder, `gpu-${gpu}.log`), 'utf8')
        .trim()
        .split('\n'),
    );
    assert.ok(logs.every((log) => log.length >= 1 && log.length <= 2));
    assert.deepEqual(logs.flat().sort(), files);
  });

  it('run each file in one part', () => {
    const [, command = ''] = /run: (find test.*)$/m.exec(page) ?? [];
    const parts = [1, 2, 3, 4].map((part) =>
      shell(command.replace(/\$\{\{ matrix\.part \}\}/, String(part)))
        .trim()
        .split('\n'),
    );
    assert.deepEqual(parts.flat().sort(), files);
  });
});
