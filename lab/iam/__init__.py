"""IAM as AWS evaluates it: who may do what, in front of every call of the lab.

policies and conditions are pure: AWS's documented evaluation logic of identity-based policies,
permissions boundaries and session policies. needs says which actions on which resources a call
wants, principals reads moto's IAM, enforce puts them together. Resource-based policies are not
evaluated, but for a role's trust: our keys leave the decision to IAM.
"""
