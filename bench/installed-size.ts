/**
 * What `npm install` puts on a disk: this package, as it is packed from a checkout with its
 * prebuild, and the peers, in MB of files. A folder each, install scripts disabled, so that what a
 * peer downloads afterwards is not counted. usage: installed-size.ts [--write]
 */
import { existsSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  bytesBelow,
  npm,
  pack,
  removeTemporaryFolders,
  root,
  temporaryFolder,
} from '../test/packaging/package.js';
import { today } from './figures.js';
import { print, type Row } from './measure.js';

const peers = ['onnxruntime-node', '@tensorflow/tfjs-node'];

function installed(what: string): string {
  const folder = temporaryFolder('size');
  npm(folder, ['install', '--prefix', '.', '--ignore-scripts', '--no-audit', '--no-fund', what]);
  return path.join(folder, 'node_modules');
}

const megabytes = (bytes: number): number => bytes / 1e6;
const ours = installed(pack());
const platform = path.join(ours, 'shardwise', 'prebuilds', `${process.platform}-${process.arch}`);
const cuda = path.join(platform, 'cuda-backend.so');
const cudaBytes = existsSync(cuda) ? statSync(cuda).size : 0;
const rows: Row[] = [
  { name: 'shardwise, CPU part', unit: 'MB', value: megabytes(bytesBelow(ours) - cudaBytes) },
  ...(cudaBytes
    ? [
        {
          name: 'shardwise, with CUDA part',
          unit: 'MB',
          value: megabytes(bytesBelow(ours)),
        } as const,
      ]
    : []),
  ...peers.map(
    (peer): Row => ({ name: peer, unit: 'MB', value: megabytes(bytesBelow(installed(peer))) }),
  ),
];
for (const row of rows) print(row);
if (process.argv.includes('--write')) {
  const date = today();
  writeFileSync(
    path.join(root, 'bench', 'results', `${date}-installed-size.json`),
    `${JSON.stringify({ date, rows }, null, 2)}\n`,
  );
}
removeTemporaryFolders();
