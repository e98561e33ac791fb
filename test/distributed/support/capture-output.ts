/** Captures the output of a call and of the processes that it starts. */
type Write = typeof process.stdout.write;

export interface CapturedOutput<T> {
  result: T;
  /** Both streams, in the order of arrival. */
  text: string;
}

export async function captureOutput<T>(call: () => Promise<T>): Promise<CapturedOutput<T>> {
  const streams = [process.stdout, process.stderr];
  const writes: Write[] = streams.map((stream) => stream.write);
  let text = '';
  for (const stream of streams) {
    stream.write = ((chunk: string | Uint8Array): boolean => {
      text += chunk.toString();
      return true;
    }) as Write;
  }
  try {
    return { result: await call(), text };
  } finally {
    streams.forEach((stream, i) => {
      stream.write = writes[i] as Write;
    });
  }
}

/** The error of a call that must fail. */
export async function errorOf(
  call: () => Promise<unknown>,
): Promise<Error & { details: Record<string, unknown> }> {
  const { result } = await captureOutput(async () => {
    try {
      await call();
    } catch (error) {
      return error as Error & { details: Record<string, unknown> };
    }
    return null;
  });
  if (result === null) throw new Error('expected an error');
  return result;
}
