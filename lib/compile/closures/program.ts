/** Which functions and classes are the program's own: only into those does `compile` look. */
import { isExported } from '../../core/library-exports.js';
import { type Bound, type Scope, type Surroundings, surroundingsOf } from './inspector.js';
import { isBuiltIn, namesIn } from './names.js';

/** Scripts of the program, as far as they are known. */
const scripts = new Set<string>();

/** Where a function was made; that never changes. */
interface Origin {
  readonly script: string;
  /** Whether the scope of a file is the only one around it. */
  readonly isOfFile: boolean;
}

const origins = new WeakMap<object, Origin | null>();

let ownScript: string | null | undefined;

/** The script of the library: also of the program, if both are in one file. */
function libraryScript(): string | null {
  ownScript ??= surroundingsOf(surroundingsOf)?.script ?? null;
  return ownScript;
}

/** One look at functions. Those of one file share its scope. */
export class Round {
  private readonly files = new Map<string, Scope>();

  /** The variables of a function by name, as they are now; null if they cannot be seen. */
  variablesOf(fn: object): ReadonlyMap<string, unknown> | null {
    const scopes = this.scopesOf(fn);
    if (scopes === null) return null;
    const found = new Map<string, unknown>();
    for (const name of namesIn(fn)) {
      const scope = scopes.find(({ variables }) => Object.hasOwn(variables, name));
      if (scope !== undefined) found.set(name, valueOf(scope.variables, name));
    }
    return found;
  }

  private scopesOf(fn: object): readonly Scope[] | null {
    const origin = origins.get(fn);
    const file = origin?.isOfFile ? this.files.get(origin.script) : undefined;
    return file === undefined ? (this.look(fn)?.scopes ?? null) : [file];
  }

  private look(fn: object): Surroundings | null {
    const around = surroundingsOf(fn);
    if (around === null) return null;
    const { script, scopes } = around;
    const isOfFile = scopes.length === 1 && scopes[0]?.isOfFile === true;
    if (isOfFile && script !== null) this.files.set(script, scopes[0] as Scope);
    origins.set(fn, script === null ? null : { script, isOfFile });
    return around;
  }

  /** What `bind` made a function of; null if it is not bound. */
  boundOf(fn: object): Bound | null {
    return isBuiltIn(fn) ? (surroundingsOf(fn)?.bound ?? null) : null;
  }

  /**
   * Whether a function or class is of a script of the program. Those are the scripts of what the
   * program gave to `compile` and of the classes of its modules: others may be the library's.
   *
   * @param isGiven - whether it is such a function or class
   */
  isOfProgram(fn: object, isGiven = false): boolean {
    if (isExported(fn) || isBuiltIn(fn)) return false;
    if (!origins.has(fn)) this.look(fn);
    const origin = origins.get(fn) ?? null;
    if (origin === null || origin.script === libraryScript()) return isGiven;
    if (!scripts.has(origin.script) && !isGiven) return false;
    scripts.add(origin.script);
    return true;
  }
}

/** Undefined for a variable that has no value yet. Imports are getters in some runtimes. */
function valueOf(variables: Readonly<Record<string, unknown>>, name: string): unknown {
  try {
    return variables[name];
  } catch {
    return undefined;
  }
}
