/** The failures of native calls, as plain data on both sides of the addon. */

export type NativeErrorCode =
  | 'SW_INVALID'
  | 'SW_OUT_OF_MEMORY'
  | 'SW_INDEX'
  | 'SW_DEVICE'
  | 'SW_UNSUPPORTED'
  | 'SW_CLOSED'
  | 'SW_NO_VALUE'
  | 'SW_PEER';

/** Why a native call failed. native/include/failure_details.h has the fields. */
export interface NativeFailure {
  code: NativeErrorCode;
  message: string;
  /** The same for all errors that report one failure; 0 if it has none. */
  id: number;
  /** The text already says which groups the ranks created. */
  namesCreations: boolean;
  /** The file with the last collectives of the process, if this failure wrote one. */
  flightRecord?: string;
  /** If memory ran out. */
  memory?: {
    requestedBytes: number;
    allocatedBytes: number;
    reservedBytes: number;
    freeBytes: number;
    totalBytes: number;
  };
  /** If a collective failed; ranks are those of the world, and what is not known is '' or 0. */
  collective?: {
    op: string;
    group: string;
    sequence: number;
    ranks: number[];
    calls: { rank: number; op: string; where: string }[];
  };
}

/** Why a rank ends a group: the errors of the other ranks report it. */
export interface NativeReason {
  readonly message: string;
  readonly id: number;
  readonly namesCreations: boolean;
  /** The ranks to blame. */
  readonly ranks: readonly number[];
  readonly calls: readonly {
    readonly rank: number;
    readonly op: string;
    readonly where: string;
  }[];
}

/** A reason as the addon reads it: message, id, namesCreations, ranks, and calls in that order. */
export type EncodedReason = readonly [
  string,
  number,
  boolean,
  readonly number[],
  readonly (readonly [rank: number, op: string, where: string])[],
];

/** Encodes a reason in arrays, because the addon reads no properties of objects. */
export function encodeReason(reason: NativeReason): EncodedReason {
  const { message, id, namesCreations, ranks, calls } = reason;
  return [
    message,
    id,
    namesCreations,
    ranks,
    calls.map(({ rank, op, where }) => [rank, op, where]),
  ];
}
