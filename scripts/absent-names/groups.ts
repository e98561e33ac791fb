/**
 * Names of PyTorch, and some of NumPy and TensorFlow.js, that are not there, with what to use
 * instead. Whoever adds one to the library removes it from this folder, and `npm run generate`
 * writes lib/core/absent-names.
 */

/** Names with one advice. An error is the name and the advice. */
export interface AbsentGroup {
  readonly names: string;
  readonly advice: string;
  /** Reads of members fail, too, as `linalg.svd`. */
  readonly isNamespace?: boolean;
}

/** The names of a namespace or a class. */
export interface AbsentPlace {
  /** The file of lib/core/absent-names. */
  readonly file: string;
  /** The namespace as programs write it, with its dot. */
  readonly prefix: string;
  /** Whether these are methods of a class, whose interface gets their types. */
  readonly methodsOf?: { readonly name: string; readonly file: string };
  readonly groups: readonly AbsentGroup[];
}

export const FORMULA =
  'is not there yet: compute it with methods of tensors; backward differentiates them';
export const COMPLEX = 'is not there yet: there are no complex numbers; keep two tensors';
export const SPARSE = 'is not there: all tensors are dense';
export const QUANTIZED =
  'is not there: there are no quantized tensors; dtypes are 16 bits or wider floats';
export const MATRIX =
  'is not there yet: of linear algebra there are products, norm, trace and triangles';
export const CONVOLUTION =
  'is not there yet: x.unfold(dim, size, step) and linear compute a convolution';
export const MAX_POOL = 'is not there yet: x.unfold(dim, size, step) and amax(-1) compute it';
export const AVERAGE_POOL = 'is not there yet: x.unfold(dim, size, step) and mean(-1) compute it';
export const RECURRENT =
  'is not there yet: write the recurrence with nn.Linear, or use nn.TransformerEncoder';
export const RESAMPLE =
  'is not there yet: x.repeatInterleave(2, -1).repeatInterleave(2, -2) doubles an image';
export const PARALLEL = "is not there: import DistributedDataParallel from 'shardwise/distributed'";
