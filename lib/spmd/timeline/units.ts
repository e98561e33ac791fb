/** Seconds and bytes as text. */

const TIMES = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'us'],
] as const;
const SIZES = [
  [2 ** 40, 'TiB'],
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB'],
] as const;

const rounded = (value: number): string =>
  value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

/** A time, such as `1.25 ms`. */
export function formatSeconds(seconds: number): string {
  if (seconds === 0) return '0';
  const [unit, name] = TIMES.find(([size]) => seconds >= size) ?? TIMES[2];
  return `${rounded(seconds / unit)} ${name}`;
}

/** A number of bytes, such as `1.25 GiB`. */
export function formatBytes(bytes: number): string {
  const found = SIZES.find(([size]) => bytes >= size);
  return found === undefined
    ? `${Math.round(bytes)} B`
    : `${rounded(bytes / found[0])} ${found[1]}`;
}
