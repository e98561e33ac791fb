/** The report of `shardwise doctor`, and the search for libraries behind it. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { after, describe, it } from 'mocha';
import { type DoctorReport, describeReport, examine, exitCode } from '../../lib/cli/doctor.js';
import type { Addon } from '../../lib/native/addon.js';
import {
  findLibrary,
  formatVersion,
  libraryCandidates,
  type OptionalLibrary,
  optionalLibraries,
  whatIsMissing,
} from '../../lib/native/libraries.js';
import { programArguments } from '../run-program.js';

const library = (name: string) =>
  optionalLibraries.find((one) => one.name === name) as OptionalLibrary;
const nccl = library('NCCL');

const folders: string[] = [];

function folderWith(...files: string[]): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-libraries-'));
  folders.push(folder);
  for (const file of files) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), '');
  }
  return folder;
}

/** An addon that opens the given files, and nothing else. */
function addonWith(versions: Record<string, number>): Addon {
  return {
    probeLibrary: (name: string) =>
      name in versions ? { path: name, version: versions[name] } : { reason: 'no such file' },
  } as unknown as Addon;
}

describe('the search for an optional library', () => {
  after(() => folders.forEach((folder) => rmSync(folder, { recursive: true })));

  it('tries the loader, then toolkits, then Python wheels', () => {
    const toolkit = folderWith('lib64/libnccl.so.2');
    const venv = folderWith('lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2');
    const candidates = libraryCandidates(nccl, {
      CUDA_HOME: toolkit,
      VIRTUAL_ENV: venv,
      HOME: '/nonexistent',
    });
    const expected = [
      'libnccl.so.2',
      path.join(toolkit, 'lib64/libnccl.so.2'),
      path.join(venv, 'lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2'),
    ];
    assert.deepEqual(
      candidates.filter((file) => expected.includes(file)),
      expected,
    );
  });

  it('takes a file or folder of the environment variable as the only candidate', () => {
    const folder = folderWith('libnccl.so.2');
    const file = path.join(folder, 'libnccl.so.2');
    assert.deepEqual(libraryCandidates(nccl, { SHARDWISE_NCCL_PATH: folder, CUDA_HOME: folder }), [
      file,
    ]);
    assert.deepEqual(libraryCandidates(nccl, { SHARDWISE_NCCL_PATH: '/wrong/libnccl.so.2' }), [
      '/wrong/libnccl.so.2',
    ]);
    assert.deepEqual(libraryCandidates(nccl, { SHARDWISE_NCCL_PATH: 'off' }), []);
  });

  it('keeps each reason, and skips a version that is too old', () => {
    const folder = folderWith('lib64/libnccl.so.2', 'lib/libnccl.so.2');
    const [old, good] = [
      path.join(folder, 'lib64/libnccl.so.2'),
      path.join(folder, 'lib/libnccl.so.2'),
    ];
    const search = findLibrary(addonWith({ [old]: 21003, [good]: 22803 }), nccl, {
      CUDA_HOME: folder,
      HOME: '/nonexistent',
    });
    assert.deepEqual(search.found, { path: good, version: 22803 });
    assert.deepEqual(search.tried, [
      { path: 'libnccl.so.2', reason: 'no such file' },
      { path: old, reason: 'version 2.10.3, but 2.18.0 or newer is needed' },
    ]);
  });

  it('separates path and reason in a message of the loader', () => {
    const addon = {
      probeLibrary: (name: string) => ({ reason: `${name}: no such file` }),
    } as unknown as Addon;
    assert.deepEqual(findLibrary(addon, nccl, { SHARDWISE_NCCL_PATH: '/wrong' }).tried, [
      { path: '/wrong', reason: 'no such file' },
    ]);
  });

  it('knows that products fail without a named cuBLASLt, but not without any', () => {
    const lt = library('cuBLASLt');
    for (const environment of [
      {},
      { SHARDWISE_CUBLASLT_PATH: '' },
      { SHARDWISE_CUBLASLT_PATH: 'off' },
    ])
      assert.equal(whatIsMissing(lt, environment), lt.without);
    assert.match(whatIsMissing(lt, { SHARDWISE_CUBLASLT_PATH: '/wrong' }), /products .* fail/);
    assert.equal(whatIsMissing(nccl, { SHARDWISE_NCCL_PATH: '/wrong' }), nccl.without);
  });

  it('formats versions', () => {
    assert.equal(formatVersion(library('libcuda'), 13000), '13.0');
    assert.equal(formatVersion(library('cuBLASLt'), 130101), '13.1.1');
    assert.equal(formatVersion(nccl, 22803), '2.28.3');
    assert.equal(formatVersion(library('NVRTC'), 12080), '12.8');
  });
});

/** The report of a machine with a driver, whose libraries of GPUs are all missing. */
const onGpuMachine = (report: DoctorReport): DoctorReport => ({
  ...report,
  cuda: { ...report.cuda, driver: '580.1' },
});

describe('shardwise doctor', () => {
  it('reports this machine, and what each missing library disables', () => {
    const report = onGpuMachine(examine('1.2.3'));
    const text = describeReport(report);
    assert.equal(report.addon.loaded, true);
    assert.match(text, /^shardwise 1\.2\.3, Node v/);
    assert.match(text, /^cpu +\S/m);
    for (const { name, path: file, without } of report.libraries) {
      assert.ok(file === null ? text.includes(`missing: ${without}`) : text.includes(file), name);
    }
  });

  it('reports one line of a GPU where there is no driver', () => {
    const { cuda, ...report } = examine('1.2.3');
    const libraries = report.libraries.map((each) => ({ ...each, path: null }));
    const none = { ...cuda, available: false, driver: null, devices: [] };
    const text = describeReport({ ...report, cuda: none, libraries });
    assert.match(text, /^gpu +no NVIDIA driver: tensors are on the CPU\. .*driver 580/m);
    assert.doesNotMatch(text, /cannot open|NCCL|cuBLASLt/);
  });

  it('fits into a terminal, except paths', () => {
    const text = describeReport(onGpuMachine(examine('1.2.3')), 60);
    for (const line of text.split('\n'))
      assert.ok(line.length <= 60 || /^(\S+)? +\/\S+$/.test(line), line);
    assert.match(text, /^cuBLASLt {2}\S.*\n {12}\S/m);
  });

  it('reports in one line whether ranks of several machines can connect', () => {
    const report = examine('1.2.3');
    const gloo = {
      path: null,
      tried: [
        { path: '/a/gloo-engine.so', reason: 'libgloo.so.0: cannot open shared object file' },
      ],
      without: report.gloo.without,
    };
    assert.match(
      describeReport({ ...report, gloo }),
      /^gloo +missing: collectives between machines do not work.*install libgloo0.*\n +\/a\/gloo-engine\.so: libgloo\.so\.0: cannot open/m,
    );
    assert.match(
      describeReport({ ...report, gloo: { ...gloo, path: '/a/gloo-engine.so' } }),
      /^gloo +\/a\/gloo-engine\.so$/m,
    );
  });

  it('reports for which GPUs compile() fuses kernels', () => {
    const report = onGpuMachine(examine('1.2.3'));
    const text = (generatesKernels: boolean[]) => describeReport({ ...report, generatesKernels });
    assert.doesNotMatch(text([]), /^fusion/m);
    assert.match(text([true, true]), /^fusion +compile\(\) fuses kernels on CUDA$/m);
    assert.match(text([true, false]), /^fusion .*does not fuse kernels on cuda:1: no NVRTC/m);
  });

  it('reports that products fail without the named cuBLASLt, with advice', async () => {
    const env = { ...process.env, SHARDWISE_CUBLASLT_PATH: '/nonexistent' };
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [...programArguments('../lib/cli/main'), 'doctor'],
      { env },
    );
    assert.match(
      stdout,
      /^cuBLASLt +missing: .*products .* fail, .*SHARDWISE_CUBLASLT_PATH .* off .*\n +\/nonexistent: cannot open/m,
    );
  }).timeout(30_000);

  it('reports why the addon is missing', () => {
    const report = examine('1.2.3');
    const text = describeReport({ ...report, addon: { loaded: false, reason: 'no prebuild' } });
    assert.match(text, /addon +missing: no prebuild/);
  });

  it('exits with 1 without the addon, and with 2 where there are fewer GPUs than asked for', () => {
    const report = onGpuMachine(examine('1.2.3'));
    const { length } = report.cuda.devices;
    assert.deepEqual([exitCode(report, 0), exitCode(report, length)], [0, 0]);
    assert.equal(exitCode(report, length + 1), 2);
    assert.equal(exitCode({ ...report, addon: { loaded: false, reason: 'none' } }, length + 1), 1);
  });

  it('prints JSON and how many GPUs are missing, for a step of CI', async () => {
    const asked = [...programArguments('../lib/cli/main'), 'doctor', '--json', '--gpus', '64'];
    const failed = await promisify(execFile)(process.execPath, asked).catch((error) => error);
    assert.equal(failed.code, 2);
    assert.match(failed.stderr, /^shardwise doctor: --gpus 64, but \d+ can be used$/m);
    assert.equal(typeof JSON.parse(failed.stdout).cuda.available, 'boolean');
  }).timeout(30_000);
});
