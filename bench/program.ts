/** How programs that measure begin and end. */
import { cuda, ShardwiseError } from '../lib/index.js';

/** Runs a program to its end. What it refuses is told without a stack, and with a status of 1. */
export async function runProgram(main: () => void | Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    if (
      !(error instanceof ShardwiseError || (error instanceof Error && error.constructor === Error))
    )
      throw error;
    console.error(error.message);
    process.exit(1);
  }
}

/** @throws DeviceError that says why there is no GPU, with what to do */
export function requireGpu(): void {
  if (!cuda.isAvailable()) cuda.getDeviceProperties();
}
