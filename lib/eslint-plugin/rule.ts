/**
 * What the plugin uses of eslint and of the compiler, as types of its own: a program without eslint
 * has no types of it.
 */

/** A node of the syntax tree. */
export interface RuleNode {
  /** The kind of the node, such as `IfStatement`. */
  readonly type: string;
  /** Of an expression with an operator. */
  readonly operator?: string;
  /** The operand before the operator. */
  readonly left?: RuleNode;
  /** The operand behind it. */
  readonly right?: RuleNode;
  /** The only operand. */
  readonly argument?: RuleNode;
  /** The condition of a statement; null where a loop has none. */
  readonly test?: RuleNode | null;
}

/** A type of the compiler. */
export interface CheckedType {
  /** Whether it is one of several types. */
  isUnion(): this is { readonly types: readonly CheckedType[] };
  /** The member of this name, if it has one. */
  getProperty(name: string): unknown;
}

/** What the parser of typescript-eslint adds to a file. */
export interface ParserServices {
  /** The program that the file belongs to. */
  readonly program?: {
    getTypeChecker(): { getBaseConstraintOfType(type: CheckedType): CheckedType | undefined };
  } | null;
  /** The type of an expression. */
  getTypeAtLocation?(node: RuleNode): CheckedType;
}

/** What eslint gives a rule. */
export interface RuleContext {
  /** The file. */
  readonly sourceCode: { readonly parserServices?: ParserServices };
  /** Adds a problem. */
  report(problem: { readonly node: RuleNode; readonly messageId: string }): void;
}

/** What a rule does at nodes, by selectors. */
export type RuleListener = Readonly<Record<string, (node: RuleNode) => void>>;

/** A rule. */
export interface Rule {
  /** What eslint shows of the rule. */
  readonly meta: {
    readonly type: 'problem';
    readonly docs: { readonly description: string; readonly url: string };
    readonly messages: Readonly<Record<string, string>>;
    readonly schema: readonly [];
  };
  /** Makes the listeners for a file. */
  create(context: RuleContext): RuleListener;
}

/** A plugin with rules of these names. */
export interface Plugin<Names extends string> {
  /** The name in messages and caches of eslint. */
  readonly meta: { readonly name: string };
  /** The rules by name. */
  readonly rules: Readonly<Record<Names, Rule>>;
}

/** An element of a flat configuration. */
export interface RuleConfig {
  /** The name in eslint's inspector. */
  readonly name: string;
  /** The files that have types. */
  readonly files: string[];
  /** Lets the parser find the types. */
  readonly languageOptions: { readonly parserOptions: { readonly projectService: true } };
  /** The plugin by the prefix of its rules. */
  readonly plugins: Readonly<Record<string, Plugin<string>>>;
  /** The rules that are on. */
  readonly rules: Readonly<Record<string, 'error'>>;
}
