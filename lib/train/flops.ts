/** Operations of models, and of devices at their peak, for the utilization of a run. */
import { checkSizesOf, optionsOf } from '../core/options.js';
import { cuda, type Device } from '../index.js';

/** Options of {@link transformerFlops}. */
export interface TransformerFlopsOptions {
  /** The number of parameters that products use: all but tables of embeddings. */
  parameters: number;
  /** The number of blocks. */
  numLayers: number;
  /** The width of attention: heads times their width. */
  dModel: number;
  /** Tokens of a sequence. */
  contextLength: number;
}

/**
 * Floating-point operations that training a transformer takes for a token, forward and backward:
 * six a parameter, and twelve a block for each of its channels and each token of attention. What is
 * computed again in backward does not count.
 *
 * @throws ArgumentError for what are no whole numbers
 * @see PaLM: Scaling Language Modeling with Pathways, appendix B
 * @example
 * transformerFlops({ parameters: 1e9, numLayers: 16, dModel: 2048, contextLength: 4096 }); // 7610612736
 */
export function transformerFlops(options: TransformerFlopsOptions): number {
  const op = 'transformerFlops';
  const sizes = optionsOf(op, options, 'parameters numLayers dModel contextLength');
  const { parameters, numLayers, dModel, contextLength } = sizes;
  checkSizesOf(op, { parameters, numLayers, dModel, contextLength });
  return 6 * parameters + 12 * numLayers * dModel * contextLength;
}

/**
 * Dense products in bfloat16 at the clock of the data sheets, by names as the driver has them. The
 * first that matches counts.
 */
const PEAKS: readonly (readonly [name: RegExp, flops: number])[] = [
  [/\bA100\b/, 312e12],
  [/\bH100 NVL\b/, 835e12],
  [/\bH100 PCIe\b/, 756e12],
  [/\bH100\b/, 989e12],
  [/\bH200\b/, 989e12],
  [/\bB200\b/, 2250e12],
];

/**
 * The most floating-point operations a second of a GPU, in dense products of bfloat16, by its name.
 * Null for the CPU and for GPUs whose data sheet is not known here.
 *
 * @example
 * peakFlops('NVIDIA H100 80GB HBM3'); // 989000000000000
 */
export function peakFlops(name: string): number | null {
  return PEAKS.find(([pattern]) => pattern.test(name))?.[1] ?? null;
}

/** The same of a device. */
export const peakFlopsOf = (device: Device): number | null =>
  device.type === 'cuda' ? peakFlops(cuda.getDeviceProperties(device).name) : null;
