/**
 * The rule against `if (a.eq(b))`: a tensor is an object, so such a condition is always true, and
 * JavaScript asks an object for no truth.
 */
import type { CheckedType, ParserServices, Rule, RuleContext, RuleNode } from './rule.js';

/** Names that only tensors have together, so that no path of the package matters. */
const MEMBERS = ['untypedStorage', 'requiresGrad_', 'tolist'];

const isTensor = (type: CheckedType): boolean =>
  type.isUnion()
    ? type.types.every(isTensor) // `Tensor | null` is asked for its presence
    : MEMBERS.every((name) => type.getProperty(name) !== undefined);

type WithTypes = Required<ParserServices> & { readonly program: object };

/** @throws Error without the types of the program, as typed rules of typescript-eslint do */
function servicesOf({ sourceCode }: RuleContext): WithTypes {
  const { parserServices } = sourceCode;
  if (parserServices?.program && parserServices.getTypeAtLocation)
    return parserServices as WithTypes;
  throw new Error(
    'shardwise/no-tensor-condition needs types: set the parser of typescript-eslint with ' +
      'languageOptions: { parserOptions: { projectService: true } }',
  );
}

/** Reports conditions that are tensors; see {@link Rule}. @internal */
export const noTensorCondition: Rule = {
  meta: {
    type: 'problem',
    docs: {
      description: 'A tensor is always true as a condition',
      url: 'https://github.com/shardwise/shardwise/blob/main/docs/tensors.md#conditions',
    },
    messages: {
      alwaysTrue:
        'A tensor is an object, so this condition is always true. Use a.equal(b) for two tensors, ' +
        'x.all().item() or x.any().item() for their elements, and x.item() for one element.',
    },
    schema: [],
  },
  create(context) {
    const services = servicesOf(context);
    const checker = services.program.getTypeChecker();
    const check = (node: RuleNode | null | undefined): void => {
      if (!node) return;
      if (node.type === 'LogicalExpression') {
        check(node.right); // the left operand has a listener of its own
        return;
      }
      const type = services.getTypeAtLocation(node);
      if (isTensor(checker.getBaseConstraintOfType(type) ?? type))
        context.report({ node, messageId: 'alwaysTrue' });
    };
    const checkTest = ({ test }: RuleNode): void => check(test);
    return {
      IfStatement: checkTest,
      WhileStatement: checkTest,
      DoWhileStatement: checkTest,
      ForStatement: checkTest,
      ConditionalExpression: checkTest,
      'UnaryExpression[operator="!"]': ({ argument }) => check(argument),
      'LogicalExpression[operator!="??"]': ({ left }) => check(left),
    };
  },
};
