/** Counts in-place changes; shared by a tensor and all its views. @internal */
export interface VersionCounter {
  value: number;
}
