/**
 * Failures of work that runs behind the program, which is told of them at its end unless it has
 * heard of them before.
 */

interface Failed {
  readonly number: number;
  readonly error: Error;
}

/**
 * Of errors that say a failure in words of their own, each that met it once: the failure itself.
 * @internal
 */
export const reasons = new WeakMap<Error, string>();

function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return reasons.get(error) ?? (error.cause instanceof Error ? error.cause.message : error.message);
}

/** @internal */
export class UnheardFailures {
  private begun = 0;
  private readonly open = new Map<object, Failed>();
  /**
   * What was heard of, and how much had begun by then: all of it that fails for the same reason is
   * known to fail.
   */
  private readonly heard = new Map<string, number>();

  /** Whether anything has failed so far, heard of or not. */
  get any(): boolean {
    return this.heard.size > 0 || this.open.size > 0;
  }

  /** Something begins that may fail. @returns its number */
  begin(): number {
    return ++this.begun;
  }

  /** It has failed, and the program has not asked for it. */
  add(work: object, number: number, error: Error): void {
    if (number > (this.heard.get(textOf(error)) ?? 0)) this.open.set(work, { number, error });
  }

  /** The program has the error in hand, from whatever has thrown it. */
  hear(error: unknown): void {
    const text = textOf(error);
    this.heard.set(text, this.begun);
    for (const [work, failed] of this.open)
      if (textOf(failed.error) === text) this.open.delete(work);
  }

  /** @throws the first that nobody has heard of */
  check(): void {
    for (const { error } of this.open.values()) throw error;
  }
}
