/**
 * Failures of asynchronous work. At its end the program gets each failure once that it has not
 * observed before.
 */

/**
 * Identifies one failure in all errors that report it. Their messages differ by command, call and
 * rank. @internal
 */
export interface FailureIdentity {
  readonly id: number;
  /** The text already says which groups the ranks created. */
  readonly namesCreations: boolean;
}

const identities = new WeakMap<Error, FailureIdentity>();

/** @internal */
export function identify(error: Error, identity: FailureIdentity | null): void {
  if (identity !== null) identities.set(error, identity);
}

/** The identity of an error or of its cause; null for an error of this rank alone. @internal */
export function identityOf(error: unknown): FailureIdentity | null {
  if (!(error instanceof Error)) return null;
  return identities.get(error) ?? identityOf(error.cause);
}

/** Unique among the processes of a program. @internal */
export const newFailureId = (): number => 1 + Math.floor(Math.random() * (2 ** 53 - 1));

interface Failed {
  readonly number: number;
  readonly error: Error;
}

function isSameFailure(a: unknown, b: unknown): boolean {
  return a === b || (identityOf(a)?.id ?? 0) === (identityOf(b)?.id ?? Number.NaN);
}

/** @internal */
export class UnobservedFailures {
  private begun = 0;
  private readonly open = new Map<object, Failed>();
  /**
   * By id: how much work had begun when the program observed the failure. All of that work that
   * fails with the same id is known to fail.
   */
  private readonly observed = new Map<number, number>();
  private hasFailed = false;

  /** Whether anything has failed so far, observed or not. */
  get any(): boolean {
    return this.hasFailed;
  }

  /** Registers work that may fail. @returns its number */
  begin(): number {
    return ++this.begun;
  }

  /** Adds the failure of work whose result the program has not asked for. */
  add(work: object, number: number, error: Error): void {
    this.hasFailed = true;
    const id = identityOf(error)?.id ?? 0;
    if (number > (this.observed.get(id) ?? 0)) this.open.set(work, { number, error });
  }

  /** Marks a failure as observed, because the program got the error. */
  observe(error: unknown): void {
    this.hasFailed = true;
    const identity = identityOf(error);
    if (identity !== null) this.observed.set(identity.id, this.begun);
    for (const [work, failed] of this.open)
      if (isSameFailure(failed.error, error)) this.open.delete(work);
  }

  /** @throws the first failure that the program has not observed */
  check(): void {
    for (const { error } of this.open.values()) throw error;
  }
}
