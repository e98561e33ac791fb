/** Formats the C++ and CUDA sources by .clang-format; with --check, only lists those that differ. */
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const clangFormat = createRequire(import.meta.url).resolve('clang-format/index.js');
const check = process.argv.includes('--check');

const patterns = ['cc', 'h', 'inc', 'cu', 'cuh'].map((ending) => `*.${ending}`);
const listed = spawnSync('git', ['ls-files', '--', ...patterns], { cwd: root, encoding: 'utf8' });
const files = listed.stdout
  .split('\n')
  .filter((file) => file !== '' && !file.startsWith('native/generated/'));

const mode = check ? ['--dry-run', '--Werror', '--ferror-limit=1'] : ['-i'];
const { status } = spawnSync(process.execPath, [clangFormat, ...mode, ...files], {
  cwd: root,
  stdio: 'inherit',
});
if (status !== 0) console.error('Run npm run format.');
process.exitCode = status ?? 1;
