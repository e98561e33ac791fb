/** Opens the CUDA backend once, and keeps the reason for each candidate that failed. */
import type { Device } from '../core/device.js';
import { DeviceError } from '../core/errors.js';
import { writer } from '../eager/submit.js';
import { cudaBackendCandidates, openCudaBackend } from '../native/load.js';

/** Whether CUDA can be used, and why not. */
export type CudaStatus =
  | { available: true; path: string }
  | {
      available: false;
      reason: string;
      tried: readonly { path: string; reason: string }[];
      hints: readonly string[];
    };

let status: CudaStatus | null = null;

export function cudaStatus(): CudaStatus {
  status ??= openBackend();
  return status;
}

/**
 * @throws DeviceError with the candidates tried and advice, or with the number of devices
 */
export function requireCuda(device: Device): void {
  const status = cudaStatus();
  if (!status.available) {
    const lines = [
      ...status.tried.map((t) => `  tried ${t.path}: ${t.reason}`),
      ...status.hints.map((h) => `  - ${h}`),
    ];
    throw new DeviceError(
      `device "${device}" is not available: ${status.reason}\n${lines.join('\n')}`,
      { device: String(device), tried: status.tried },
    );
  }
  const count = writer.addon.deviceCount('cuda');
  if (device.index >= count)
    throw new DeviceError(`there is no ${device}: ${count} CUDA devices were found`, {
      device: String(device),
    });
}

function openBackend(): CudaStatus {
  const tried: { path: string; reason: string }[] = [];
  for (const path of cudaBackendCandidates()) {
    const reason = openCudaBackend(writer.addon, path);
    if (reason === null) return { available: true, path };
    tried.push({ path, reason });
  }
  if (tried.length === 0) {
    return {
      available: false,
      reason: 'the CUDA part of shardwise is not built or not installed',
      tried,
      hints: [
        'install a release with CUDA for this platform',
        'build here with nvcc of CUDA 12.8 or newer on PATH: npx shardwise-build',
      ],
    };
  }
  const driver = tried.some((t) => /driver|no CUDA|35/i.test(t.reason));
  return {
    available: false,
    reason: [...new Set(tried.map((t) => t.reason))].join('; '),
    tried,
    hints: driver
      ? ['check that nvidia-smi works', 'install or update the NVIDIA driver to 580 or newer']
      : ['rebuild both parts together: npx shardwise-build'],
  };
}
