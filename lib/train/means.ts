/** Means of as many equal parts of a list as there are columns, or its values if there are fewer. */
export function meansOf(values: readonly number[], columns: number): number[] {
  const parts = Math.min(columns, values.length);
  return Array.from({ length: parts }, (_, i) => {
    const from = Math.floor((i * values.length) / parts);
    const part = values.slice(from, Math.floor(((i + 1) * values.length) / parts));
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}
