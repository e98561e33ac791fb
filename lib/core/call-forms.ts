/**
 * The types of calls: derives from one declaration every form in which its arguments may be given.
 * The run-time side is signature.ts.
 */

/**
 * The parameters of a declaration such as `'sum(input, /, dim, keepdim, *, dtype)'`, as a tuple of
 * names and markers.
 */
type Listed<Text extends string> = Text extends `${string}(${infer Inside})`
  ? Split<Inside>
  : never;
type Split<Text extends string> = Text extends `${infer First}, ${infer Rest}`
  ? [First, ...Split<Rest>]
  : Text extends ''
    ? []
    : [Text];

/** The names before a marker: all where it is missing. */
type Before<Names extends string[], Marker> = Names extends [
  infer First extends string,
  ...infer Rest extends string[],
]
  ? First extends Marker
    ? []
    : [First, ...Before<Rest, Marker>]
  : [];
/** The names after a marker: none where it is missing. */
type After<Names extends string[], Marker> = Names extends [
  infer First,
  ...infer Rest extends string[],
]
  ? First extends Marker
    ? Rest
    : After<Rest, Marker>
  : [];

/** The names that cannot be given as options: those before `/`. */
type PositionalOnly<Names extends string[]> = '/' extends Names[number] ? Before<Names, '/'> : [];
/** The names that may be given by position: those before `*`. */
type Positional<Names extends string[]> = [
  ...PositionalOnly<Names>,
  ...('/' extends Names[number] ? After<Before<Names, '*'>, '/'> : Before<Names, '*'>),
];
/** The names that are options only: those after `*`. */
type KeywordOnly<Names extends string[]> = After<Names, '*'>;

type AnyBody = (...args: never[]) => unknown;
/** A tuple without its last element, which holds the options. */
type Init<Types extends unknown[]> = Types extends [...infer Rest, unknown] ? Rest : [];
type Last<Types extends unknown[]> = Types extends [...unknown[], infer Final] ? Final : never;

/** The parameters that the body takes by position. */
type BodyPositional<Names extends string[], Body extends AnyBody> =
  KeywordOnly<Names> extends [] ? Parameters<Body> : DropLast<Parameters<Body>>;
/** `Parameters` without the last one, which may be optional. The others keep their labels. */
type DropLast<Types extends unknown[]> = [...RequiredPart<Types>] extends infer Needed extends
  unknown[]
  ? OptionalPart<Types> extends []
    ? Init<Needed>
    : [...Needed, ...Partial<Init<OptionalPart<Types>>>]
  : never;
/** The parameters that the body takes as options only. */
type BodyOptions<Names extends string[], Body extends AnyBody> =
  KeywordOnly<Names> extends [] ? unknown : NonNullable<Last<Required<Parameters<Body>>>>;

/** The optional parameters at the end, as required ones, so that the last one can be removed. */
type OptionalPart<Types extends unknown[]> = Types extends [unknown, ...infer Rest]
  ? OptionalPart<Rest>
  : Required<Types>;
type RequiredPart<Types extends unknown[]> =
  Required<Types> extends [...infer Needed, ...OptionalPart<Types>] ? Needed : [];

/** The parameters as an object with their names as keys. */
type Named<Names extends unknown[], Types extends unknown[]> = Names extends [
  infer Name extends string,
  ...infer MoreNames,
]
  ? Types extends [infer Type, ...infer MoreTypes]
    ? { [N in Name]: Type } & Named<MoreNames, MoreTypes>
    : unknown
  : unknown;
type Flat<T> = { [Name in keyof T]: T[Name] } & {};
/** The first names of a list, as many as there are types. */
type TakeAs<Names extends unknown[], Types extends unknown[]> = Types extends [
  unknown,
  ...infer MoreTypes,
]
  ? Names extends [infer Name, ...infer More]
    ? [Name, ...TakeAs<More, MoreTypes>]
    : []
  : [];
type DropAs<Names extends unknown[], Types extends unknown[]> = Types extends [
  unknown,
  ...infer MoreTypes,
]
  ? Names extends [unknown, ...infer More]
    ? DropAs<More, MoreTypes>
    : []
  : Names;

/** All parameters as options. */
type AllNamed<Names extends string[], Body extends AnyBody> =
  BodyPositional<Names, Body> extends infer Types extends unknown[]
    ? Flat<
        Named<TakeAs<Positional<Names>, RequiredPart<Types>>, RequiredPart<Types>> &
          Partial<Named<DropAs<Positional<Names>, RequiredPart<Types>>, OptionalPart<Types>>> &
          BodyOptions<Names, Body>
      >
    : never;

/**
 * The arguments of a call that passes some by position and the rest as options. The options may be
 * omitted if none is required.
 */
type Form<Given extends unknown[], Options, Left> = [Left] extends [never]
  ? Given
  : object extends Flat<Pick<Options, Left & keyof Options>>
    ? [...Given, options?: Flat<Pick<Options, Left & keyof Options>>]
    : [...Given, options: Flat<Pick<Options, Left & keyof Options>>];

/**
 * The arguments of all forms. The first form passes all arguments by position. The next pass fewer
 * of the optional ones, then fewer of the `Needed`; the last passes only the `Fixed`, which have no
 * names.
 */
type OptionalForms<
  Fixed extends string[],
  Names extends string[],
  Needed extends unknown[],
  Rest extends unknown[],
  Options,
  Left,
> = [
  Form<[...Needed, ...Partial<Rest>], Options, Left>,
  ...(Rest extends [...infer Fewer, unknown]
    ? Names extends [...infer FewerNames extends string[], infer Name]
      ? OptionalForms<Fixed, FewerNames, Needed, Fewer, Options, Left | Name>
      : []
    : NeededForms<Fixed, Names, Needed, Options, Left>),
];
type NeededForms<
  Fixed extends string[],
  Names extends string[],
  Needed extends unknown[],
  Options,
  Left,
> = Needed['length'] extends Fixed['length']
  ? []
  : Names extends [...infer FewerNames extends string[], infer Name]
    ? Needed extends [...infer Fewer, unknown]
      ? [
          Form<Fewer, Options, Left | Name>,
          ...NeededForms<Fixed, FewerNames, Fewer, Options, Left | Name>,
        ]
      : []
    : [];

type FormsOf<Names extends string[], Body extends AnyBody> = OptionalForms<
  PositionalOnly<Names>,
  Positional<Names>,
  RequiredPart<BodyPositional<Names, Body>>,
  OptionalPart<BodyPositional<Names, Body>>,
  AllNamed<Names, Body>,
  KeywordOnly<Names>[number]
>;
/**
 * One overload for each form, so that editors show the forms and TypeScript rejects unknown
 * options. `Parameters` reads the last overload, which takes all arguments by position.
 */
type Calls<Forms, Result> = Forms extends [infer First extends unknown[], ...infer Rest]
  ? Calls<Rest, Result> & ((...args: First) => Result)
  : unknown;

/** A function with an overload for every form that its declaration allows. */
export type FunctionOf<Text extends string, Body extends AnyBody> = Calls<
  FormsOf<Listed<Text>, Body>,
  ReturnType<Body>
> &
  Declared<Listed<Text>, Body>;

declare const declaration: unique symbol;
/** Holds the declaration in the type of a function. */
export interface Declared<Names extends string[], Body extends AnyBody> {
  readonly [declaration]?: [Names, Body];
}

/**
 * The method of a declared function: it has no first parameter, which is the tensor itself.
 * In-place methods return `this`.
 */
export type MethodOf<F, Result = unknown> =
  F extends Declared<infer Names, infer Body>
    ? Calls<
        FormsOf<WithoutFirst<Names>, BodyWithoutFirst<Body>>,
        unknown extends Result ? ReturnType<Body> : Result
      >
    : never;

type WithoutFirst<Names extends string[]> = Names extends [
  string,
  '/',
  ...infer Rest extends string[],
]
  ? Rest
  : Names extends [string, ...infer Rest extends string[]]
    ? Rest
    : never;
type BodyWithoutFirst<Body extends AnyBody> =
  Parameters<Body> extends [unknown, ...infer Rest] ? (...args: Rest) => unknown : never;

/**
 * The arguments of all forms, for a constructor that passes them on: `constructor(...args:
 * ArgumentsOf<typeof linear>)`.
 */
export type ArgumentsOf<F> =
  F extends Declared<infer Names, infer Body> ? FormsOf<Names, Body>[number] : never;

/** A function that takes {@link ArgumentsOf} as they are. */
export type ArgumentsFunction<Text extends string, Body extends AnyBody> = ((
  ...args: FormsOf<Listed<Text>, Body>[number]
) => ReturnType<Body>) &
  Declared<Listed<Text>, Body>;
