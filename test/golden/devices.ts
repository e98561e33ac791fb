/** The devices that golden tests run on. The reference is PyTorch's CPU result for all of them. */
import { cuda } from '../../lib/index.js';
import type { DeviceName } from './tensors.js';

const useCuda = process.env['SHARDWISE_TEST_GPU'] !== 'off' && cuda.isAvailable();

export const devices: readonly DeviceName[] = useCuda ? ['cpu', 'cuda'] : ['cpu'];
