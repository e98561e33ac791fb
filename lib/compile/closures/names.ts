/** The names that the text of a function mentions. */

/** Not behind a dot, where it is a property; `...name` is none. */
const NAME =
  /(?<![\p{ID_Continue}$])(?<!(?:^|[^.])\.)[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/gu;

const known = new WeakMap<object, ReadonlySet<string>>();

/** Names in strings and comments are among them. Built-in functions have none. */
export function namesIn(fn: object): ReadonlySet<string> {
  let names = known.get(fn);
  if (names === undefined) {
    names = new Set(textOf(fn).match(NAME));
    known.set(fn, names);
  }
  return names;
}

/** The words are no names: `return ++n`. */
const COUNTED =
  /(?<![\w$.#])(?!(?:return|case|yield|await|void|typeof|in|of|do|else|throw|delete)(?![\w$]))([A-Za-z_$][\w$]*)\s*(?:\+\+|--|(?:\*\*|<<|>>>?|&&|\|\||\?\?|[-+*/%&|^])=)|(?:\+\+|--)\s*([A-Za-z_$][\w$]*)(?![\w$]|\s*[.[])/g;
const SET = /(?<![\w$.#])([A-Za-z_$][\w$]*)\s*=(?![=>])/g;

/**
 * The names to which the text of a function seems to assign, its own variables among them. In a
 * class, `name = value` declares a field.
 */
export function namesAssignedIn(fn: object): ReadonlySet<string> {
  const text = textOf(fn);
  const patterns = text.startsWith('class') ? [COUNTED] : [COUNTED, SET];
  return new Set(
    patterns.flatMap((pattern) =>
      Array.from(text.matchAll(pattern), ([, name, other]) => name ?? other ?? ''),
    ),
  );
}

const PRIVATE_NAME = /#[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/gu;

/** The private fields that the text of a class mentions: `#name`. */
export const privateNamesIn = (constructor: object): readonly string[] =>
  textOf(constructor).match(PRIVATE_NAME) ?? [];

const PRIVATE_SET =
  /(?:\+\+|--)\s*[\w$.]+\.#|\.#[\w$]+\s*(?:\+\+|--|(?:\*\*|<<|>>>?|&&|\|\||\?\?|[-+*/%&|^])?=(?![=>]))/;

/** Whether the text of a class seems to assign to private fields, in its constructor or elsewhere. */
export const assignsToPrivateFields = (constructor: object): boolean =>
  PRIVATE_SET.test(textOf(constructor));

/** Whether the runtime has a function: some of its classes, as `URL`, are JavaScript. */
export const isBuiltIn = (fn: object): boolean =>
  /\{\s*\[native code\]\s*\}$/.test(textOf(fn)) ||
  (globalThis as Record<string, unknown>)[(fn as { name: string }).name] === fn;

const textOf = (fn: object): string => Function.prototype.toString.call(fn);
