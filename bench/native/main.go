// Command native is an operator in Go, for comparison with the role `web` of the benchmark.
//
// It makes a Deployment and a headless Service for each Web in a namespace, as the role does.
package main

import (
	"context"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	web := newWeb()
	if err := r.Get(ctx, request.NamespacedName, web); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	replicas, _, err := unstructured.NestedInt64(web.Object, "spec", "replicas")
	if err != nil {
		return ctrl.Result{}, err
	}
	labels := map[string]string{"app": request.Name}
	meta := metav1.ObjectMeta{Name: request.Name, Namespace: request.Namespace}

	deployment := &appsv1.Deployment{ObjectMeta: meta}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		count := int32(replicas)
		deployment.Spec.Replicas = &count
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
		}
		return controllerutil.SetControllerReference(web, deployment, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}

	service := &corev1.Service{ObjectMeta: meta}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Spec.ClusterIP = corev1.ClusterIPNone
		service.Spec.Selector = labels
		port := corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}
		service.Spec.Ports = []corev1.ServicePort{port}
		return controllerutil.SetControllerReference(web, service, r.Scheme())
	})
	return ctrl.Result{}, err
}

func newWeb() *unstructured.Unstructured {
	web := &unstructured.Unstructured{}
	web.SetAPIVersion("bench.example.com/v1")
	web.SetKind("Web")
	return web
}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(os.Getenv("WATCH_NAMESPACE")); err != nil {
		ctrl.Log.Error(err, "Cannot run")
		os.Exit(1)
	}
}

func run(namespace string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(newWeb()).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
