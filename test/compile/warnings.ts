/** The warnings of `compile` while `fn` runs. */
export async function warningsOf(fn: () => void): Promise<string[]> {
  const found: string[] = [];
  const listen = (warning: Error): void => {
    if (warning.name === 'CompileWarning') found.push(warning.message);
  };
  process.on('warning', listen);
  try {
    fn();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off('warning', listen);
  }
  return found;
}
